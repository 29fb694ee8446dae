package cpufeature

import "os"

func performanceCores() int { return capable(os.DirFS("/sys/devices/system/cpu")) }
