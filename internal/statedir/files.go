package statedir

// Names of files and directories in the state directory.
const (
	TokenFile       = "token"        // first token, one line
	FirstLoginFile  = "first-login"  // code for the first sign-in, one line
	AddressFile     = "address"      // host:port that the running server listens on
	WorklessFile    = "workless"     // how many servers in a row have ended because no worker was connected
	SSHHostKeyFile  = "ssh-host-key" // private key of the SSH server
	DatabaseFile    = "modbox.db"
	BinDir          = "bin" // programs that the server unpacks
	StreamsDir      = "streams"
	ImagesDir       = "images"
	CheckpointsDir  = "checkpoints"
	SpoolDir        = "spool"     // files under way
	TemplatesDir    = "templates" // memory templates of the running server
	QuarantineDir   = "quarantine"
	BallastDir      = "ballast"
	WorkerDir       = "worker"       // token, authority and id of the worker
	CertificatesDir = "certificates" // account, certificates and keys from an ACME server
)

// lockFile is in the run directory as well.
const lockFile = "lock"

// waitFile is locked by the servers that wait for the other lock, together.
const waitFile = "lock.wait"

// startFile is locked by a server for the time in which it makes files that several servers share.
const startFile = "lock.start"
