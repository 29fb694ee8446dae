package format

import (
	"bufio"
	"iter"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// orderCharacters are the characters of an order list, with or without Python's brackets and
// commas.
const (
	orderSeparators = " ,[]\t\r\n"
	orderCharacters = orderSeparators + "0123456789-."
)

// readOrder reads the order list, which contains the signed numbers of each rank's stages on one line or
// in brackets.
func (f *File) readOrder(options Options) error {
	lists, err := f.lists(options.Ranks)
	if err != nil {
		return err
	}
	programs := make([]program, len(lists))
	for rank, list := range lists {
		if programs[rank], err = f.readSigned(rank, len(lists), list); err != nil {
			return err
		}
	}
	return f.setPlan(lists, programs, options, schedule.Looped)
}

// readSigned reads the order of a rank. A chunk is a stage of the rank. Microbatches are counted from 0 for
// each chunk and kind.
func (f *File) readSigned(rank, ranks int, list line) (program, error) {
	text := f.text[list.start:list.end]
	p := newProgram(len(text), 2*len(text))
	var next [numCounts][]int // by count and chunk: the next microbatch
	limit := (schedule.MaxStages - 1 - rank) / ranks
	for word, offset := range words(text, orderSeparators) {
		offset += list.start
		number, weights := strings.CutSuffix(word, ".5")
		digits, backward := strings.CutPrefix(number, "-")
		chunk, err := strconv.Atoi(digits)
		if err != nil || chunk < 1 || chunk > limit+1 || weights && !backward || digits[0] == '+' {
			return p, f.fault(offset, "found %s, expected 1 to %d for the forward of a stage of the rank, -1 for its backward, or -1.5 for its weight gradient", quote(word), limit+1)
		}
		chunk--
		kind, count := schedule.F, forwards
		switch {
		case weights:
			kind, count = schedule.W, weightGradients
		case backward:
			kind, count = schedule.B, backwards
		}
		for len(next[count]) <= chunk {
			next[count] = append(next[count], 0)
		}
		if err := f.add(&p, schedule.NewAction(kind, chunk*ranks+rank, next[count][chunk]), offset); err != nil {
			return p, err
		}
		next[count][chunk]++
	}
	for i, a := range p.actions { // the backward of a chunk with separate weight gradients is I
		chunk := a.Stage() / ranks
		if a.Kind() == schedule.B && chunk < len(next[weightGradients]) && next[weightGradients][chunk] > 0 {
			p.actions[i] = schedule.NewAction(schedule.I, a.Stage(), a.Microbatch())
		}
	}
	return p, nil
}

// The counts of each chunk.
const (
	forwards = iota
	backwards
	weightGradients
	numCounts
)

// words yields each word of a text and its offset.
func words(text, separators string) iter.Seq2[string, int] {
	return func(yield func(word string, offset int) bool) {
		for i := 0; i < len(text); {
			if strings.IndexByte(separators, text[i]) >= 0 {
				i++
				continue
			}
			end := len(text)
			if n := strings.IndexAny(text[i:], separators); n >= 0 {
				end = i + n
			}
			if !yield(text[i:end], i) {
				return
			}
			i = end
		}
	}
}

// refuseOrder returns an error if an order list cannot express the plan, whatever the order of its actions.
func refuseOrder(plan *schedule.Plan) error {
	place := plan.Placement
	if place.Copies > 1 {
		return refuse(Order, "the list numbers the stages of one model, and the plan has %d copies", place.Copies)
	}
	for stage, rank := range place.Rank {
		if rank != stage%place.Ranks {
			return refuse(Order, "stage %d is on rank %d, and the list would put it on rank %d: its stages cycle through the ranks", stage, rank, stage%place.Ranks)
		}
	}
	for stage, frozen := range plan.Frozen {
		if frozen && plan.Mode == schedule.Training {
			return refuse(Order, "stage %d is frozen, which the list cannot express", stage)
		}
	}
	return nil
}

// writeSigned writes the order of a rank.
func writeSigned(b *bufio.Writer, plan *schedule.Plan, rank int) error {
	ranks := plan.Placement.Ranks
	chunks := (plan.Placement.Stages() - rank + ranks - 1) / ranks
	next := make([][numCounts]int, chunks)
	kinds := make([]schedule.Kind, chunks) // by chunk: the kind of its backward; None before the first one
	separator := ""
	for a := range plan.All(rank) {
		included, refused := Order.includes(a.Kind())
		switch {
		case refused:
			return refuse(Order, "%v on rank %d is of a kind that the list cannot express", a, rank)
		case !included:
			continue
		case a.Joined():
			return refuse(Order, "%v on rank %d is joined with the next action, and the list has no pairs", a, rank)
		case a.Stage()%ranks != rank || a.Stage()/ranks >= chunks:
			return refuse(Order, "%v on rank %d is of a stage that the rank does not have", a, rank)
		}
		chunk, count, sign, half := a.Stage()/ranks, forwards, "", ""
		switch a.Kind() {
		case schedule.B, schedule.I:
			count, sign = backwards, "-"
			if kinds[chunk] != schedule.None && kinds[chunk] != a.Kind() {
				return refuse(Order, "stage %d has both B and I, and the list has only one of them for a stage", a.Stage())
			}
			kinds[chunk] = a.Kind()
		case schedule.W:
			count, sign, half = weightGradients, "-", ".5"
		}
		if expected := next[chunk][count]; a.Microbatch() != expected {
			return refuse(Order, "%v on rank %d comes where the list counts microbatch %d: the microbatches of a stage must ascend", a, rank, expected)
		}
		next[chunk][count]++
		b.WriteString(separator + sign + strconv.Itoa(chunk+1) + half)
		separator = " "
	}
	for chunk, n := range next {
		if weights := n[weightGradients]; (kinds[chunk] == schedule.I) != (weights > 0) {
			return refuse(Order, "stage %d has I without W or W without I, and the list needs both", chunk*ranks+rank)
		}
	}
	return nil
}
