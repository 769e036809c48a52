import sys

from modbox import ModboxClient, Resources

PROGRAM = """
limit = int(open("limit.txt").read())
primes = [n for n in range(2, limit) if all(n % d for d in range(2, n))]
print(primes)
open("count.txt", "w").write(str(len(primes)))
"""


def main() -> None:
    sandboxes = ModboxClient().sandboxes  # MODBOX_URL, MODBOX_API_TOKEN
    sandbox = sandboxes.create(
        image="modbox/code-exec",
        ttl_seconds=300,  # it ends by itself, whatever happens to us
        resources=Resources(memory="512Mi", cpu="1", disk="1Gi"),
        wait_seconds=60,
    )
    print("sandbox", sandbox.state)
    try:
        sandboxes.files.write(sandbox.id, "/tmp/work/limit.txt", "30", parents=True)
        result = sandboxes.exec(sandbox.id, ["python3", "-c", PROGRAM], cwd="/tmp/work", timeout_seconds=20)
        print("exit code", result.exit_code)
        print(result.stdout, end="", flush=True)

        for event in sandboxes.exec_stream(sandbox.id, shell="for i in 1 2 3; do echo line $i; done"):
            if event.type == "stdout":
                sys.stdout.buffer.write(event.data)
                sys.stdout.flush()
        print("count", sandboxes.files.read_text(sandbox.id, "/tmp/work/count.txt"))
    finally:
        print("sandbox", sandboxes.delete(sandbox.id).state)


main()
