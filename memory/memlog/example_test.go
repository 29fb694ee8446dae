package memlog_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

func ExampleLog() {
	log := memlog.New(os.Stdout)
	sample := memory.Sample{Time: 1_700_000_000_000_000_000, Step: 3, Microbatch: 5, Kind: "B", Live: 64, Peak: 4160, Reserved: 8192, Weight: 96}
	sample.Classes[memory.Resident] = 64
	log.Sample(&sample)
	if err := log.Err(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"schema":1,"time":1700000000000000000,"step":3,"rank":0,"microbatch":5,"stage":0,"action":"B","live":64,"peak":4160,"reserved":8192,"excess":0,"growth":0,"weight":96,"wait_data":0,"classes":{"resident":64}}
}

func ExampleRead() {
	// Lines that any trainer can write. The last one is torn.
	log := strings.NewReader(`{"step":1,"rank":0,"microbatch":0,"allocated":4096,"reserved":8192,"peak":6144}
{"step":1,"rank":0,"microbatch":1,"allocated":4336,"reserved":8192,"peak":6384}
{"step":1,"rank":0,"microb`)
	before := int64(0)
	for record, err := range memlog.Read(log) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		if record.Microbatch > 0 {
			fmt.Println("growth:", record.Live-before, "bytes")
		}
		before = record.Live
	}
	// Output:
	// growth: 240 bytes
	// memlog: not a line of a memory log: 3:27: found the end of the text, expected more of the record: the last line is torn
}
