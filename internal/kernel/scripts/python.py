def _modbox_setup():
    import _thread, codecs, fcntl, os, select, struct, sys, termios
    from IPython import get_ipython
    shell = get_ipython()

    # What child processes write to a standard stream arrives in a pipe. ipykernel's thread that reads it
    # gives no sign when it has passed on what it read, and ends at text that is not UTF-8. A thread of ours
    # takes its place, and reads only under a lock: the holder of the lock finds everything that was written
    # in the pipe or already passed on.
    class Pipe:
        def __init__(self, stream):
            self.stream, self.fd = stream, stream._fid
            self.lock = _thread.allocate_lock()
            self.decoder = codecs.getincrementaldecoder('utf-8')('replace')

        def take(self, end):
            with self.lock:
                size = struct.unpack('i', fcntl.ioctl(self.fd, termios.FIONREAD, b'\0' * 4))[0]
                text = self.decoder.decode(os.read(self.fd, size) if size else b'', end)
                if text:
                    self.stream.write(text)

        def watch(self):
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            while poll.poll()[0][1] & select.POLLIN and self.stream._should_watch:
                self.take(False)

    # ipykernel sends each text of a child process of os.fork over a connection of its own, where it may arrive out of order or
    # after the end of the code. The child writes to the pipe.
    def write_pipe(number, stream):
        def write(text):
            if not isinstance(text, str):
                raise TypeError(f'write() argument must be str, not {type(text)}')
            rest = text.encode(errors='replace')
            while rest:
                rest = rest[os.write(number, rest):]
            return len(text)

        stream.write, stream.flush = write, lambda: None

    pipes, streams = [], (sys.stdout, sys.stderr)
    for number, stream in enumerate(streams, 1):
        if not hasattr(stream, '_fid'):
            continue
        # The thread notices its end when it has read something, which it drops.
        stream._should_watch = False
        os.write(number, b'\0')
        stream.watch_fd_thread.join()
        stream._should_watch = True
        pipes.append(Pipe(stream))
        # ipykernel would send output of a threading.Thread as output of the cell that started it.
        _thread.start_new_thread(pipes[-1].watch, ())
        os.register_at_fork(after_in_child=lambda number=number, stream=stream: write_pipe(number, stream))
    # ipykernel flushes both streams several times in a cell. Each time it wakes its thread and waits for it, also when there is
    # no text. The thread may have taken text and not yet queued it: what is sent after a flush is sent after that. There is no lock,
    # because finalizers and signal handlers, which may flush too, run anywhere.
    def skip_empty(stream):
        flush, send = stream.flush, stream._flush
        sending = 0  # changed by the thread alone

        def flush_text():
            texts = list(stream._buffers.values()) if hasattr(stream, '_buffers') else [stream._buffer]
            try:
                written = any(text.tell() for text in texts)
            except ValueError:  # the thread has taken and closed it
                written = True
            if written or sending:  # in this order: the thread counts before it takes text
                flush()

        def send_text():
            nonlocal sending
            sending += 1
            try:
                send()
            finally:
                sending -= 1

        stream.flush, stream._flush = flush_text, send_text

    for stream in streams:
        if hasattr(stream, '_flush') and (hasattr(stream, '_buffers') or hasattr(stream, '_buffer')):
            skip_empty(stream)
    process = os.getpid()

    def flush():
        if os.getpid() == process:
            for pipe in pipes:
                pipe.take(True)
        for stream in streams:
            stream.flush()

    shell.events.register('post_run_cell', lambda *result: flush())


try:
    _modbox_setup()
finally:
    del _modbox_setup
