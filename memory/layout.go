package memory

// Layout says where the buffers of a step lie, before the step begins. The program of a
// rank is cut into places, one for an action; repeats of an action share a place. What
// is allocated at a place, in order, are its births.
type Layout struct {
	Height int64   // bytes of the step's part of the arena
	Births []Birth // of place after place
	Places []int32 // Births[Places[p]:Places[p+1]] are born at place p
	Levels []Level // by place
}

// Birth is one allocation of a layout.
type Birth struct {
	Offset int64  // in the step's part of the arena, bytes
	Bytes  int64  // that will be asked for
	Live   uint64 // the sum of marks (Mark) of what is live before it
	Class  Class
}

// Level is how much of a step is live at a place, in bytes as they are asked for.
type Level struct {
	Live int64 // after the place
	Peak int64 // the most within the place
}

// Mark is a number for a range of an arena. The sum of the marks of all live buffers
// tells in one comparison whether the buffers that are live are those that a layout
// has there.
func Mark(offset, bytes int64) uint64 {
	x := uint64(offset)*0x9e3779b97f4a7c15 ^ uint64(bytes)*0xbf58476d1ce4e5b9
	x ^= x >> 29
	x *= 0x94d049bb133111eb
	return x ^ x>>32
}

// Planned is an optional ability of a Space: to place the buffers of a step where a
// layout says.
type Planned interface {
	// Lay makes room for the steps of a layout, pages included, and places what is
	// allocated from now on as the layout says, until Lay(nil). It is ErrOutOfMemory where
	// there is no room, and an error that names the owner where something of an earlier
	// step is live. The layout is borrowed until the next Lay.
	Lay(layout *Layout) error
	// At says at which place of the layout the program is.
	At(place int)
}
