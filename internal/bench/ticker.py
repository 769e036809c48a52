import os, signal, time

heap = bytearray(os.urandom(1 << 20) * 50)
asked = False


def ask(*_):
    global asked
    asked = True


signal.signal(signal.SIGUSR1, ask)
longest, last = 0.0, time.monotonic()
with open("/tmp/ticker.pid.new", "w") as f:
    f.write(str(os.getpid()))
os.rename("/tmp/ticker.pid.new", "/tmp/ticker.pid")
while True:
    time.sleep(0.001)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    if asked:
        with open("/tmp/gap.new", "w") as f:
            f.write(str(int(longest * 1e6)))
        os.rename("/tmp/gap.new", "/tmp/gap")
        asked, longest, last = False, 0.0, time.monotonic()
