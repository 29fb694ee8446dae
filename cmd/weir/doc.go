// Weir makes and checks pipeline plans on the command line.
//
//	weir plan depth-first --ranks 1 --stages 4 --microbatches 64 > plan.txt
//	weir check plan.txt
package main
