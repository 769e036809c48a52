package rootfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sort"
	"time"
)

// The parts of EROFS that this package reads and changes itself; all numbers are little endian. Our
// images use no other parts of the format.
const (
	blockSize        = 4096
	blockSizeBits    = 12
	superblock       = 1024 // its offset; the following numbers are offsets in it
	superblockLength = 128
	superMagic       = 0xE0F5E1E2
	superFeatures    = 8  // uint32, compatible features
	superBlockBits   = 12 // uint8
	superRoot        = 14 // uint16, the root's inode number
	superBuildTime   = 24 // uint64
	superBlocks      = 36 // uint32, size of the image in blocks
	superMetaBlock   = 40 // uint32, where inodes begin
	superUUID        = 48
	superUUIDLength  = 16
	checksumFeature  = 1 // in superFeatures

	inodeSlot       = 32 // bytes; an inode's number counts slots
	inodeCompact    = 32 // bytes of a short inode
	inodeExtended   = 64 // bytes of a long inode
	inodeDataBlock  = 16 // uint32 in an inode, address of the first data block
	extendedInode   = 1  // in the first uint16 of an inode
	layoutMask      = 7 << 1
	layoutPlain     = 0
	layoutInline    = 2
	direntLength    = 12 // bytes, before the names
	direntNumber    = 0  // uint64 in a directory entry, the inode's number
	direntNameStart = 8  // uint16 in a directory entry, in its block
	direntType      = 10 // uint8 in a directory entry
)

// disk reads an EROFS made by the writer that we use: its inodes have no extended attributes, and
// its data is plain or inline.
type disk struct {
	r         io.ReaderAt
	meta      int64 // offset of the inodes
	root      uint64
	buildTime uint64
}

// diskInode is an inode of a disk.
type diskInode struct {
	number    uint64
	at        int64 // its offset
	layout    uint16
	data      int64 // offset of its contents
	size      int64
	mode      fs.FileMode
	uid, gid  uint32
	rdev      uint32
	links     uint32
	mtime     time.Time
	dataBlock uint32
}

// openDisk reads the superblock.
func openDisk(r io.ReaderAt) (*disk, error) {
	var super [superblockLength]byte
	if _, err := r.ReadAt(super[:], superblock); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if le.Uint32(super[:]) != superMagic || super[superBlockBits] != blockSizeBits || le.Uint32(super[superFeatures:])&checksumFeature != 0 {
		return nil, errors.New("it is an EROFS of an unexpected kind")
	}
	return &disk{
		r: r, meta: int64(le.Uint32(super[superMetaBlock:])) * blockSize,
		root: uint64(le.Uint16(super[superRoot:])), buildTime: le.Uint64(super[superBuildTime:]),
	}, nil
}

// inode reads an inode.
func (d *disk) inode(number uint64) (diskInode, error) {
	at := d.meta + int64(number)*inodeSlot
	var b [inodeExtended]byte
	if n, err := d.r.ReadAt(b[:], at); err != nil && (!errors.Is(err, io.EOF) || n < inodeCompact) {
		return diskInode{}, fmt.Errorf("read inode %d: %w", number, err)
	}
	le := binary.LittleEndian
	format := le.Uint16(b[:])
	in := diskInode{number: number, at: at, layout: format & layoutMask >> 1, mode: modeOf(le.Uint16(b[4:])), dataBlock: le.Uint32(b[inodeDataBlock:])}
	length := int64(inodeCompact)
	if format&extendedInode == 0 {
		in.links, in.size = uint32(le.Uint16(b[6:])), int64(le.Uint32(b[8:]))
		in.uid, in.gid = uint32(le.Uint16(b[24:])), uint32(le.Uint16(b[26:]))
		in.mtime = time.Unix(int64(d.buildTime), 0)
	} else {
		length = inodeExtended
		in.size, in.links = int64(le.Uint64(b[8:])), le.Uint32(b[44:])
		in.uid, in.gid = le.Uint32(b[24:]), le.Uint32(b[28:])
		in.mtime = time.Unix(int64(le.Uint64(b[32:])), int64(le.Uint32(b[40:])))
	}
	if in.mode&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		in.rdev, in.dataBlock = in.dataBlock, 0
	}
	switch {
	case le.Uint16(b[2:]) != 0:
		return diskInode{}, fmt.Errorf("inode %d has extended attributes", number)
	case in.layout == layoutPlain:
		in.data = int64(in.dataBlock) * blockSize
	case in.layout == layoutInline && in.size < blockSize:
		in.data = at + length
	default:
		return diskInode{}, fmt.Errorf("inode %d has the unexpected layout %d", number, in.layout)
	}
	return in, nil
}

// content returns the content of a file, the target of a link or the entries of a directory.
func (d *disk) content(in diskInode) *io.SectionReader {
	return io.NewSectionReader(d.r, in.data, in.size)
}

// dirent is an entry of a directory.
type dirent struct {
	at     int64 // its offset
	number uint64
	name   string
}

// entries calls do for each entry of a directory but "." and "..".
func (d *disk) entries(dir diskInode, do func(dirent) error) error {
	block := make([]byte, min(blockSize, dir.size))
	for off := int64(0); off < dir.size; off += blockSize {
		b := block[:min(blockSize, dir.size-off)]
		if _, err := d.r.ReadAt(b, dir.data+off); err != nil {
			return fmt.Errorf("read directory %d: %w", dir.number, err)
		}
		if err := direntsOf(b, dir.data+off, do); err != nil {
			return fmt.Errorf("read directory %d: %w", dir.number, err)
		}
	}
	return nil
}

// sorted returns what entries calls do for, and its error in the end. That the names are not sorted is an
// error.
func (d *disk) sorted(dir diskInode) iter.Seq2[dirent, error] {
	return func(yield func(dirent, error) bool) {
		last := ""
		err := d.entries(dir, func(e dirent) error {
			if e.name <= last {
				return fmt.Errorf("the names in directory %d are not sorted", dir.number)
			}
			last = e.name
			if !yield(e, nil) {
				return errFound
			}
			return nil
		})
		if err != nil && !errors.Is(err, errFound) {
			yield(dirent{}, err)
		}
	}
}

// lookup returns the number of the inode with a name in a directory; false for none. It relies on the
// order of the names, as gVisor does.
func (d *disk) lookup(dir diskInode, name string) (number uint64, ok bool, err error) {
	block := make([]byte, min(blockSize, dir.size))
	for low, high := int64(0), (dir.size+blockSize-1)/blockSize; low < high; {
		middle := (low + high) / 2
		b := block[:min(blockSize, dir.size-middle*blockSize)]
		if _, err := d.r.ReadAt(b, dir.data+middle*blockSize); err != nil {
			return 0, false, fmt.Errorf("read directory %d: %w", dir.number, err)
		}
		count, err := direntCount(b)
		if err != nil {
			return 0, false, fmt.Errorf("read directory %d: %w", dir.number, err)
		}
		at := sort.Search(count, func(i int) bool {
			one, nameErr := direntName(b, i, count)
			err = errors.Join(err, nameErr)
			return string(one) >= name
		})
		switch {
		case err != nil:
			return 0, false, fmt.Errorf("read directory %d: %w", dir.number, err)
		case at == count:
			low = middle + 1
		default:
			if one, _ := direntName(b, at, count); string(one) == name { // the search has read it
				return binary.LittleEndian.Uint64(b[at*direntLength+direntNumber:]), true, nil
			}
			if at > 0 {
				return 0, false, nil
			}
			high = middle
		}
	}
	return 0, false, nil
}

// direntsOf calls do for the entries of a block at the position at.
func direntsOf(b []byte, at int64, do func(dirent) error) error {
	count, err := direntCount(b)
	if err != nil {
		return err
	}
	for i := range count {
		name, err := direntName(b, i, count)
		if err != nil {
			return err
		}
		if string(name) == "." || string(name) == ".." {
			continue
		}
		number := binary.LittleEndian.Uint64(b[i*direntLength+direntNumber:])
		if err := do(dirent{at: at + int64(i*direntLength), number: number, name: string(name)}); err != nil {
			return err
		}
	}
	return nil
}

var errDamaged = errors.New("it is damaged")

// direntCount returns the number of entries in a block.
func direntCount(b []byte) (int, error) {
	if len(b) < direntLength {
		return 0, errDamaged
	}
	count := int(binary.LittleEndian.Uint16(b[direntNameStart:])) / direntLength
	if count*direntLength > len(b) {
		return 0, errDamaged
	}
	return count, nil
}

// direntName returns the name of an entry of a block with count entries. The last name ends with the
// block or the first zero.
func direntName(b []byte, i, count int) ([]byte, error) {
	le := binary.LittleEndian
	e := b[i*direntLength:]
	start, end := int(le.Uint16(e[direntNameStart:])), len(b)
	if i+1 < count {
		end = int(le.Uint16(e[direntLength+direntNameStart:]))
	}
	if start > end || end > len(b) {
		return nil, errDamaged
	}
	if i+1 == count {
		return cutZeros(b[start:end]), nil
	}
	return b[start:end], nil
}

func cutZeros(name []byte) []byte {
	for i, c := range name {
		if c == 0 {
			return name[:i]
		}
	}
	return name
}

// The bits of a mode that are not permissions.
const (
	bitsType    = 0o170000
	bitsFifo    = 0o010000
	bitsChar    = 0o020000
	bitsDir     = 0o040000
	bitsBlock   = 0o060000
	bitsSymlink = 0o120000
	bitsSocket  = 0o140000
	bitsSetuid  = 0o4000
	bitsSetgid  = 0o2000
	bitsSticky  = 0o1000
)

// modeOf translates a mode of Linux.
func modeOf(bits uint16) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, m := range map[uint16]fs.FileMode{bitsSetuid: fs.ModeSetuid, bitsSetgid: fs.ModeSetgid, bitsSticky: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= m
		}
	}
	switch bits & bitsType {
	case bitsDir:
		mode |= fs.ModeDir
	case bitsSymlink:
		mode |= fs.ModeSymlink
	case bitsChar:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case bitsBlock:
		mode |= fs.ModeDevice
	case bitsFifo:
		mode |= fs.ModeNamedPipe
	case bitsSocket:
		mode |= fs.ModeSocket
	}
	return mode
}
