// Package job runs a trainer as a job: the ranks of its pipeline are goroutines of one process,
// or of several processes that connect over sockets or over MPI.
//
// [Flags] registers the flags of a job: the plan of a step, the numbers of ranks and stages, the
// memory budget of a step, the address of the job, the folder of checkpoints, and the folder of
// the run with its log, losses and page ([Folder]). The job can also show them during training
// ([Watch]). A trainer adds its own flags to the same set, calls [Options.Parse] and then
// [Options.Validate], which reads the files that the flags name and checks the plan.
//
// [Session.Run] then runs a [Trainer]: it resumes from the last checkpoint, meets the other processes, trains,
// writes checkpoints, and ends the run in all processes. After an interrupt, it writes everything before it
// ends the run. The same command then continues the run. The following functions are for trainers that need
// another order.
//
// [Options.Meet] returns this process's part of the job, a [Process], or nil if it is the only
// process: in that case, all ranks are goroutines, and the methods of the nil Process support this.
// After [Process.Join] all processes train in the same way. The first one leads: it writes the log, the
// manifests of checkpoints and the page. [Process.Step] sends it the memory log of the other ranks, and
// [Process.JoinActions] their last actions. [Process.AgreeOnEnd] makes all processes end the run in the same
// way. [Process.Answer] answers weir status and weir hang.
package job
