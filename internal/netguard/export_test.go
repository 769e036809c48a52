package netguard

// Ranges are all closed ranges.
var Ranges = ranges
