package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/erofs/go-erofs"
)

// Positions in an EROFS that storePlain changes; all numbers are little endian.
const (
	blockSize        = 4096
	superblock       = 1024
	superMagic       = 0xE0F5E1E2
	superFeatures    = superblock + 8  // uint32, compatible features
	superBlockBits   = superblock + 12 // uint8
	superBlocks      = superblock + 36 // uint32, size of the image in blocks
	superMetaBlock   = superblock + 40 // uint32, where inodes begin
	checksumFeature  = 1               // in superFeatures
	inodeSlot        = 32              // bytes; an inode's number counts slots
	inodeBlock       = 16              // uint32, address of the first data block
	layoutInline     = 2
	layoutMask       = 7 << 1 // in the first uint16 of an inode
	blockSizeBits    = 12
	superblockLength = 128
)

// storePlain moves the contents of files that the EROFS writer stored inline,
// beside their inode, to blocks of their own at the end of the image. gVisor can
// read an inline file but not map it into memory, and programs do map small
// files (locale data, git's index): they would die of a bus error.
func storePlain(f *os.File) error {
	var super [superblockLength]byte
	if _, err := f.ReadAt(super[:], superblock); err != nil {
		return err
	}
	le := binary.LittleEndian
	at := func(off int) []byte { return super[off-superblock:] }
	if le.Uint32(super[:]) != superMagic || at(superBlockBits)[0] != blockSizeBits || le.Uint32(at(superFeatures))&checksumFeature != 0 {
		return errors.New("the EROFS writer made an image of an unexpected kind")
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	p := plainStore{f: f, meta: int64(le.Uint32(at(superMetaBlock))) * blockSize, next: (end + blockSize - 1) / blockSize}
	img, err := erofs.Open(f)
	if err != nil {
		return err
	}
	if err := fs.WalkDir(img, ".", p.visit(img)); err != nil {
		return err
	}
	if err := f.Truncate(p.next * blockSize); err != nil {
		return err
	}
	_, err = f.WriteAt(le.AppendUint32(nil, uint32(p.next)), superBlocks)
	return err
}

type plainStore struct {
	f    *os.File
	meta int64 // where inodes begin
	next int64 // the first free block
}

// visit returns the function that moves each inline file of img.
func (p *plainStore) visit(img fs.FS) fs.WalkDirFunc {
	return func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*erofs.Stat)
		if !ok {
			return fmt.Errorf("%s has no inode", name)
		}
		if stat.InodeLayout != layoutInline || stat.Size == 0 {
			return nil
		}
		content, err := fs.ReadFile(img, name)
		if err != nil {
			return err
		}
		return p.move(stat.Ino, content)
	}
}

// move writes the content to the next free blocks and makes the inode say so.
// Content shorter than its blocks needs no padding: the file is extended with zeros.
func (p *plainStore) move(inode int64, content []byte) error {
	off := p.meta + inode*inodeSlot
	var format [2]byte
	if _, err := p.f.ReadAt(format[:], off); err != nil {
		return err
	}
	le := binary.LittleEndian
	if _, err := p.f.WriteAt(le.AppendUint16(nil, le.Uint16(format[:])&^layoutMask), off); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(le.AppendUint32(nil, uint32(p.next)), off+inodeBlock); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(content, p.next*blockSize); err != nil {
		return err
	}
	p.next += (int64(len(content)) + blockSize - 1) / blockSize
	return nil
}
