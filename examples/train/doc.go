// Command train trains a small transformer language model on real text, with many microbatches
// per step, and shows that memory does not grow.
//
//	go run ./examples/train
//
// It needs only Go: the text is part of every Go installation. It is read byte by byte, and its
// last tenth is held out. The model is cut into pipeline stages that run depth first: a
// microbatch completes its forward and backward before the next one begins, and all of its
// memory is released. After every microbatch the live bytes that the allocator counts are compared
// with those that the step counts; growth is the change of their difference, and is 0 bytes.
//
//	go run ./examples/train -ranks 4 -plan zb-v
//
// trains it on four ranks of this process, each with its own device and goroutine, under any
// schedule of package schedule. The weights have the same bits, except that three schedules differ in
// the last bits because they add gradients in another order: dualpipe, which adds the gradients
// of its two copies of the model separately; seq1f1b with -slices, which processes the slices of
// a sequence in reverse; and breadth-first with -descending.
//
//	go run ./examples/train -ranks 2 -transport unix:/tmp/job -processes 2 -process 0 &
//	go run ./examples/train -ranks 2 -transport unix:/tmp/job -processes 2 -process 1
//
// trains it in two processes, with the same bits; with tcp:HOST:PORT and -tls they may be on two
// hosts. The first process writes the results of the run.
//
//	CC=mpicc go build -tags mpi ./examples/train && mpirun -n 2 ./train -transport mpi
//
// does the same over MPI.
//
//	go run ./examples/train -fp8 mxfp8 -fp8-attention
//
// computes the linear layers in FP8, and keeps one byte per element of the tensors that the
// backward of linear layers and attention needs. The weights are again the same for every
// schedule.
//
//	go run ./examples/train -data train.bin -tokens uint16
//
// trains it on a file of GPT-2 tokens of any size, as llm.c and others write them: the file is
// mapped, not read into memory. -tokens uint32 is for tokens of Llama 3.
//
//	go run ./examples/train -lengths -seq 1024 -ranks 2 -emit-costs costs.json
//	go run ./examples/train -lengths -seq 1024 -ranks 2 -plan 1f1b -costs costs.json -pack 4096
//
// trains it on whole files of Go's source. Documents share microbatches of up to 4,096 bytes: package
// schedule/pack decides which documents share one, and in which order the microbatches run, so that the
// step is short for the measured costs.
//
//	go run ./examples/train -emit-costs costs.json -ranks 4 -layers 6
//	go run ./cmd/weir choose --costs costs.json --ranks 4 --microbatches 64 -o best.json
//	go run ./examples/train -plan best.json -layers 6
//
// measures the cost of each stage, finds the best plan for these costs, and trains with it.
// -plan accepts files in every format that weir reads. With -costs, or with the costs in the
// file of the plan, a run compares the simulated and the measured duration of its steps.
//
// The run folder (runs/<time> by default) gets the memory log (memory.jsonl), the losses
// (losses.csv) and a page with plots (report.html). During the run the names of the first two
// files end in .partial, and they keep this ending if the process is killed or the disk is full: go run
// ./cmd/weir mem reads such a log too. Ctrl-C ends the run after the current action and writes
// all results. -checkpoint writes weights and moments into a folder, at intervals and at the
// end, and -resume continues from them with the same bits as an uninterrupted run. If both name
// the same folder, the same command starts a run and resumes it, and the files of earlier attempts
// in the folder of -run are moved into subfolders. A checkpoint stores the flags
// that affect the weights, including -products; -plain-launches does not affect them.
// go run ./examples/train -help lists all flags.
//
// You can write your trainer by copying this one: it imports only public packages. Read main.go,
// train.go, model.go and data.go in this order; state.go reads and writes checkpoints, packed.go packs
// documents, memory.go plans the memory of a step, and the other files contain flags and output. Package
// trainer/job defines the flags of the plan and of several processes, connects the processes, and calls
// the trainer in the right order (job.Session.Run).
//
// The exit status is 0 on success, 1 after an error, printed in one line, 3 after an error or
// the end of another process of the job, and 130 after an interrupt.
package main
