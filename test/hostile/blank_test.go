package hostile_test

import (
	"testing"

	"github.com/modbox/modbox/client"
)

// TestRootInABlankBox has root in a sandbox whose box was started before its image was known attack what the
// agent made its root with.
func TestRootInABlankBox(t *testing.T) {
	r := newRig(t, "--pool-size", "3")
	r.AwaitBlankBox()
	id := r.MustCreate(client.CreateOptions{Name: "victim", Image: "modbox/base"}).ID
	if !r.FromPool(id) {
		t.Fatal("the sandbox has no box of the pool")
	}
	const attack = `command -v mount umount kill readlink >/dev/null || echo a tool is missing
for at in / /.modbox /layers/0 /root /proc; do
	mount -t modbox-image none $at 2>/dev/null && echo mounted $at
	unshare -rm mount -t modbox-image none $at 2>/dev/null && echo mounted $at in a namespace
done
umount -l / 2>/dev/null && echo unmounted; umount -l /.modbox 2>/dev/null && echo unmounted
ls -d /layers /upper /.modbox-frame-* 2>/dev/null
for s in KILL STOP SEGV; do kill -$s 1 2>/dev/null && echo sent $s; done
unshare -rm true && echo end`
	if out := r.asRoot(id, attack); out != "end" {
		t.Errorf("root in the sandbox could do this:\n%s", out)
	}
	r.asRootResult(id, `rm -rf /.modbox; mv /.modbox /gone; echo > "$(readlink /proc/1/exe)"`)
	r.alive(id)
	r.gone(id)
}
