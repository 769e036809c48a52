package config

// Disk configures the handling of a full disk of the state directory. Docs/limits.md explains it.
type Disk struct {
	Ballast    Bytes `yaml:"ballast" doc:"Disk reserve in state_dir/ballast. The server deletes it when the disk is full, so that it can still write its database, and creates it again later. 0: none."`
	EvictBelow Bytes `yaml:"evict_below" doc:"Free disk below which the server frees space: it removes caches, and then ends the sandbox whose files grew most, with cause disk_full, one at a time. auto: half of min_free_disk, but at least 64Mi. 0: never."`
}

// Quarantine bounds saved states that are missing from the database. Docs/durability.md explains it.
type Quarantine struct {
	MaxAge   Duration `yaml:"max_age" doc:"Retention of saved states, and of root filesystems of snapshots, that are missing from the database (it may be the wrong database). The server removes them earlier, oldest first, when less than min_free_disk is free. 0: no limit."`
	MaxBytes Bytes    `yaml:"max_bytes" doc:"Maximum disk use of these saved states, and the same again for these root filesystems; beyond it the server removes the oldest. auto: a quarter of state_dir's file system. 0: no limit."`
}
