package kerneltest

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

func embeddingCases() []Case {
	return []Case{
		newCase("embed", false, embedForward),
		newCase("embed/backward", false, embedBackward),
		newCase("embed/ids", false, embedIDs),
	}
}

// embedShapes are numbers of tokens, width and vocabulary size. The vocabularies are small, so
// that ids repeat.
var embedShapes = [][3]int{{1, 1, 1}, {1, 5, 3}, {7, 4, 2}, {33, 16, 10}, {130, 3, 5}, {300, 130, 40}}

func embedForward(l *lab) {
	for _, s := range embedShapes {
		tokens, width, vocabulary := s[0], s[1], s[2]
		title := fmt.Sprintf("Embed of %d tokens, width %d", tokens, width)
		ids := l.ids(tokens, vocabulary)
		table, positions := l.normal(vocabulary*width, 1), l.normal((tokens+2)*width, 1)
		want := make([]float32, tokens*width)
		for i := range want {
			want[i] = table[int(ids[i/width])*width+i%width] + positions[i]
		}
		op := kernels.Embed{
			IDs: l.putInts("IDs", ids), Table: l.put("Table", table), Positions: l.put("Positions", positions),
			X: l.result("X", tokens*width), Tokens: tokens, Width: width, Vocabulary: vocabulary,
		}
		l.do(title, func() error { return l.d.Embed(op) }, op.X)
		l.exactly(title, l.read(op.X), want)
		l.drop()
	}
}

func embedBackward(l *lab) {
	for _, s := range embedShapes {
		for form := range 4 {
			tokens, width, vocabulary := s[0], s[1], s[2]
			title := fmt.Sprintf("EmbedBackward of %d tokens, width %d, form %d", tokens, width, form)
			ids, dx := l.ids(tokens, vocabulary), l.normal(tokens*width, 1)
			op := kernels.EmbedBackward{
				IDs: l.putInts("IDs", ids), DX: l.put("DX", dx),
				Tokens: tokens, Width: width, Vocabulary: vocabulary,
				AccumulateTable: form&1 != 0, AccumulatePositions: form&2 != 0,
			}
			dtable, dpositions := make([]float32, vocabulary*width), make([]float32, (tokens+2)*width)
			var before []float32
			op.DTable, before = l.sum("DTable", len(dtable), op.AccumulateTable)
			copy(dtable, before)
			op.DPositions, before = l.sum("DPositions", len(dpositions), op.AccumulatePositions)
			copy(dpositions, before)
			for i, g := range dx {
				dtable[int(ids[i/width])*width+i%width] += g
				dpositions[i] += g
			}
			l.do(title, func() error { return l.d.EmbedBackward(op) }, op.DTable, op.DPositions)
			l.exactly(title+": DTable", l.read(op.DTable), dtable)
			l.exactly(title+": DPositions", l.read(op.DPositions), dpositions)

			alone := op
			alone.DTable, alone.DPositions, alone.AccumulatePositions = kernels.Buffer{}, l.result("DPositions", len(dpositions)), false
			l.do(title+" without DTable", func() error { return l.d.EmbedBackward(alone) }, alone.DPositions)
			alone.DTable, alone.DPositions, alone.AccumulateTable = l.result("DTable", len(dtable)), kernels.Buffer{}, false
			l.do(title+" without DPositions", func() error { return l.d.EmbedBackward(alone) }, alone.DTable)
			if form == 0 {
				l.exactly(title+": DTable alone", l.read(alone.DTable), dtable)
			}
			l.drop()
		}
	}
}

// embedIDs checks ids that are not rows of the table.
func embedIDs(l *lab) {
	for _, id := range []int32{-1, 4, 1 << 30} {
		ids := l.putInts("IDs", []int32{0, 3, id})
		op := kernels.Embed{
			IDs: ids, Table: l.put("Table", l.normal(8, 1)), Positions: l.put("Positions", l.normal(6, 1)),
			X: l.result("X", 6), Tokens: 3, Width: 2, Vocabulary: 4,
		}
		l.refuse(fmt.Sprintf("Embed of id %d of 4", id), kernels.ErrShape, func() error { return l.d.Embed(op) })
		back := kernels.EmbedBackward{
			IDs: ids, DX: l.put("DX", l.normal(6, 1)), DTable: l.result("DTable", 8), DPositions: l.result("DPositions", 6),
			Tokens: 3, Width: 2, Vocabulary: 4,
		}
		l.refuse(fmt.Sprintf("EmbedBackward of id %d of 4", id), kernels.ErrShape, func() error { return l.d.EmbedBackward(back) })
		l.drop()
	}
}
