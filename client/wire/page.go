package wire

// Page is a part of a list.
type Page[T any] struct {
	Items      []T     `json:"items" nullable:"false" doc:"The items of the page."`
	NextCursor *string `json:"next_cursor,omitempty" doc:"Pass it as cursor for the next page; absent on the last one."`
}
