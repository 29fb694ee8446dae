package layout

// kin is what is born again in every repeat: what it is, and which of the microbatches
// that a repeat begins it is of.
type kin struct {
	kind                 originKind
	stage, index, within int32
}

// kinOf returns the kin of what is of a microbatch, and the repeat that began it, where
// repeat 0 began with microbatch 0.
func kinOf(o origin, microbatch, stride int) (k kin, repeat int) {
	within := microbatch % stride
	if within < 0 {
		within += max(stride, -stride)
	}
	return kin{o.kind, o.stage, o.index, int32(within)}, (microbatch - within) / stride
}

// virtual is a buffer of a round, and how many repeats after its birth its microbatch
// began: fewer than none for what is of earlier ones.
type virtual struct{ buffer, ahead int }

// stand gives the items of a program the offsets of those that they stand for in a round
// without beginning or end: what is of the same microbatch there. The real program does
// the same things in the same order, and less: there are no microbatches before the first
// one, and none behind the last. So what does not overlap there does not overlap here,
// but for a few things that are done at another time at the ends. It makes no difference
// whether repeats were passed over, as long as that was by whole cycles.
func (s *steady) stand(a *attempt, fixed []int64) {
	p := a.played
	if stride := p.program[s.segment].Stride; stride != 0 {
		for i := range p.items {
			it := &p.items[i]
			if it.origin.microbatch < 0 {
				continue
			}
			k, repeat := kinOf(it.origin, int(it.origin.microbatch), stride)
			for _, v := range s.kins[k] {
				if it.bytes == s.Buffers[v.buffer].Size {
					fixed[a.group[i]] = s.floor + s.offset(repeat-v.ahead, v.buffer)
				}
			}
		}
	}
	at := int64(0)
	for _, i := range s.kept {
		fixed[a.group[i]] = at
		at += roundUp(p.items[i].bytes, line)
	}
}

// offset returns where a buffer of a repeat lies in the round. Which repeat is the first one
// of a cycle is all the same.
func (s *steady) offset(repeat, buffer int) int64 {
	phase := repeat % s.laid.Cycle
	if phase < 0 {
		phase += s.laid.Cycle
	}
	return s.laid.Offsets[phase*len(s.Buffers)+buffer]
}
