package rootfs

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// finishEROFS corrects the output of the EROFS writer.
//
// It moves the contents of files that the writer stored inline, beside their inode, to blocks of
// their own at the end of the image. gVisor can read an inline file but not map it into memory, and
// programs do map small files (locale data, git's index): they would die of a bus error.
//
// And it links the names of a file: the writer made an inode for each name, of which only the first
// has contents; finishEROFS changes the directory entries of the others to the first inode. The
// other inodes stay, a few bytes that nothing names.
func finishEROFS(f *os.File, names map[*node][]string) error {
	d, err := openDisk(f)
	if err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	p := finisher{f: f, disk: d, next: (end + blockSize - 1) / blockSize, first: map[string]string{}, inodes: map[string]uint64{}}
	for _, same := range names {
		for _, name := range same[1:] {
			p.first[name], p.inodes[same[0]] = same[0], 0
		}
	}
	root, err := d.inode(d.root)
	if err != nil {
		return err
	}
	if err := p.visit("", root); err != nil {
		return err
	}
	if err := f.Truncate(p.next * blockSize); err != nil {
		return err
	}
	_, err = f.WriteAt(binary.LittleEndian.AppendUint32(nil, uint32(p.next)), superblock+superBlocks)
	return err
}

type finisher struct {
	f      *os.File
	disk   *disk
	next   int64             // the first free block
	first  map[string]string // the first name of a file, by its further names
	inodes map[string]uint64 // by first name
}

// visit walks a directory in the order of the names, so that it sees a first name before the
// others.
func (p *finisher) visit(prefix string, dir diskInode) error {
	var entries []dirent
	if err := p.disk.entries(dir, func(e dirent) error { entries = append(entries, e); return nil }); err != nil {
		return err
	}
	for _, e := range entries {
		if err := p.entry(prefix+e.name, e); err != nil {
			return fmt.Errorf("%s: %w", prefix+e.name, err)
		}
	}
	return nil
}

func (p *finisher) entry(full string, e dirent) error {
	if first, ok := p.first[full]; ok {
		_, err := p.f.WriteAt(binary.LittleEndian.AppendUint64(nil, p.inodes[first]), e.at+direntNumber)
		return err
	}
	if _, ok := p.inodes[full]; ok {
		p.inodes[full] = e.number
	}
	in, err := p.disk.inode(e.number)
	switch {
	case err != nil:
		return err
	case in.mode.IsDir():
		return p.visit(full+"/", in)
	case in.mode.IsRegular() && in.layout == layoutInline && in.size > 0:
		return p.move(in)
	}
	return nil
}

// move writes the content of an inline file to the next free blocks and changes its inode. Content
// shorter than its blocks needs no padding: the file is extended with zeros.
func (p *finisher) move(in diskInode) error {
	content, err := io.ReadAll(p.disk.content(in))
	if err != nil {
		return err
	}
	var format [2]byte
	if _, err := p.f.ReadAt(format[:], in.at); err != nil {
		return err
	}
	le := binary.LittleEndian
	if _, err := p.f.WriteAt(le.AppendUint16(nil, le.Uint16(format[:])&^layoutMask), in.at); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(le.AppendUint32(nil, uint32(p.next)), in.at+inodeDataBlock); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(content, p.next*blockSize); err != nil {
		return err
	}
	p.next += (int64(len(content)) + blockSize - 1) / blockSize
	return nil
}
