package wire

// Page is a part of a list.
type Page[T any] struct {
	Items      []T     `json:"items" nullable:"false" doc:"The items of the page."`
	NextCursor *string `json:"next_cursor" doc:"Pass it as cursor for the next page; null on the last one."`
}
