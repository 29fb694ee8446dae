package frames

// Forget forgets the failure of a call, which goes on: a test may try several.
func (c *Frames[T]) Forget() { c.failure, c.generation = nil, c.generation-1 }
