package frames

// Forget clears the failure of a call, so that a test may try several calls.
func (c *Frames[T]) Forget() { c.failure, c.generation = nil, c.generation-1 }
