package layout

// SearchOptions returns the limits of the search for the layout of a step.
var SearchOptions = searchOptions
