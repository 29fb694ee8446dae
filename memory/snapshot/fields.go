package snapshot

// field is a key of a dict with a pointer to its value, for reading or writing.
type field struct {
	key   string
	value any
}

// Types of values with a special form in the file.
type (
	size      int64 // bytes, at least 0
	requested int64 // bytes; less than 0 means unknown
	split     int64 // bytes; written as -1 if it is 0
	small     bool  // "small" or "large"
)

func (s *Segment) fields() []field {
	sizes := s.Sizes() // the sizes in the file are redundant
	return []field{
		{"device", &s.Device},
		{"address", &s.Address},
		{"total_size", (*size)(&s.Size)},
		{"allocated_size", &sizes.Allocated},
		{"active_size", &sizes.Active},
		{"requested_size", &sizes.Requested},
		{"stream", &s.Stream},
		{"segment_type", (*small)(&s.Small)},
		{"segment_pool_id", &s.Pool},
		{"is_expandable", &s.Expandable},
		{"frames", &s.Frames},
		{"blocks", &s.Blocks},
	}
}

func (b *Block) fields() []field {
	return []field{
		{"address", &b.Address},
		{"size", (*size)(&b.Size)},
		{"requested_size", (*requested)(&b.Requested)},
		{"state", &b.State},
		{"frames", &b.Frames},
	}
}

// fields returns the fields of an entry, with its address under each of the given keys.
func (e *TraceEntry) fields(addresses ...string) []field {
	list := make([]field, 0, 7)
	list = append(list, field{"action", &e.Action})
	for _, key := range addresses {
		list = append(list, field{key, &e.Address})
	}
	return append(list,
		field{"size", (*size)(&e.Size)},
		field{"stream", &e.Stream},
		field{"time_us", &e.Time},
		field{"frames", &e.Frames})
}

func (s *Settings) fields() []field {
	return []field{
		{"PYTORCH_CUDA_ALLOC_CONF", &s.Conf},
		{"max_split_size", (*split)(&s.MaxSplit)},
		{"garbage_collection_threshold", new(float64)},
		{"expandable_segments", &s.Expandable},
	}
}

func (f *Frame) fields() []field {
	return []field{{"name", &f.Name}, {"filename", &f.Filename}, {"line", &f.Line}}
}
