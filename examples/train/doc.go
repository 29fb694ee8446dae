// Command train trains a small transformer language model on real text, many
// microbatches a step, and shows that memory stays flat.
//
//	go run ./examples/train
//
// It needs nothing but Go: the text is one that every Go installation has, read
// byte by byte, and the last tenth is held out. The model is cut into pipeline
// stages that run depth first: a microbatch goes all the way forward and back
// before the next one begins, and nothing of it stays. After every microbatch two
// books of what is alive are compared; growth is what they come to differ by, and
// is 0 bytes.
//
//	go run ./examples/train -ranks 4 -plan zb-v
//
// trains it on four ranks of this process, each with a device and a goroutine of its
// own, under any schedule that package schedule knows. The weights are the same, bit
// for bit. Three ways to run differ in the last bits, because they add gradients in
// another order: dualpipe, which adds those of its two copies of the model apart;
// seq1f1b with -slices, which takes the slices of a sequence backwards; and
// breadth-first with -descending.
//
//	go run ./examples/train -ranks 2 -transport unix:/tmp/job -processes 2 -process 0 &
//	go run ./examples/train -ranks 2 -transport unix:/tmp/job -processes 2 -process 1
//
// trains it in two processes, to the same bits too; with tcp:HOST:PORT and -tls they may be
// on two hosts. The first process writes what the run leaves behind.
//
//	CC=mpicc go build -tags mpi ./examples/train && mpirun -n 2 ./train -transport mpi
//
// does so over MPI.
//
//	go run ./examples/train -fp8 mxfp8 -fp8-attention
//
// computes the linear layers in FP8, and keeps a byte an element of what the backward
// needs of them and of attention. The weights are the same for every schedule here too.
//
//	go run ./examples/train -data train.bin -tokens uint16
//
// trains it on a file of GPT-2's tokens, as llm.c and others write them, of any size: the
// file is mapped, and not read into memory. -tokens uint32 takes those of Llama 3.
//
//	go run ./examples/train -emit-costs costs.json -ranks 4 -layers 6
//	go run ./cmd/weir choose --costs costs.json --ranks 4 --microbatches 64 -o best.json
//	go run ./examples/train -plan best.json -layers 6
//
// measures what each stage costs, finds the best plan for it, and trains with that. -plan
// takes files of every form that weir reads. With -costs, or with the costs in the file of
// the plan, a run shows what a simulation says of its steps next to what it has measured.
//
// The run folder (runs/<time> by default) gets the memory log (memory.jsonl), the
// losses (losses.csv) and a page with plots (report.html). While it runs, the names of
// the first two end in .partial, and where it is killed, or the disk is full, they stay
// under these: go run ./cmd/weir mem reads such a log too. Ctrl-C ends the run after the
// current action with everything written. -checkpoint writes weights and
// moments into a folder, in time and at the end, and -resume goes on from there to the same
// bits as a run that never stopped. With both on one folder the same command begins a run
// and goes on with it. A checkpoint keeps the flags that decide what is learned, -products too;
// how kernels are launched changes no bit. All flags: go run ./examples/train -help
//
// A trainer of your own can begin as a copy of this one: it imports public packages alone.
// The way through it is main.go, train.go, model.go and data.go; state.go is its
// checkpoints, memory.go plans the memory of a step, and the rest is flags and output. Package
// trainer/job has the flags of the plan and of several processes, and joins them.
//
// Exit status: 0 done, 1 an error, said in one line, 3 an error of another process of the
// job, or its end, 130 interrupted.
package main
