package sandbox

// Installation identifies a database and tells its states apart.
type Installation struct {
	// ID is 32 hexadecimal digits, made at random with the database.
	ID string
	// Generation only grows: of two copies of one database the newer one has the higher.
	Generation int64
}
