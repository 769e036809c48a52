import { ModboxClient } from "modbox-sdk";

const program = `
limit = int(open("limit.txt").read())
primes = [n for n in range(2, limit) if all(n % d for d in range(2, n))]
print(primes)
open("count.txt", "w").write(str(len(primes)))
`;

async function main() {
  const { sandboxes } = new ModboxClient(); // MODBOX_URL, MODBOX_API_TOKEN
  const sandbox = await sandboxes.create({
    image: "modbox/code-exec",
    ttlSeconds: 300, // it ends by itself, whatever happens to us
    resources: { memory: "512Mi", cpu: "1", disk: "1Gi" },
    waitSeconds: 60,
  });
  console.log("sandbox", sandbox.state);
  try {
    await sandboxes.files.write(sandbox.id, "/tmp/work/limit.txt", "30", { parents: true });
    const result = await sandboxes.exec(sandbox.id, { command: ["python3", "-c", program], cwd: "/tmp/work", timeoutSeconds: 20 });
    console.log("exit code", result.exitCode);
    process.stdout.write(result.stdout);

    for await (const event of sandboxes.execStream(sandbox.id, { shell: "for i in 1 2 3; do echo line $i; done" })) {
      if (event.type === "stdout") process.stdout.write(event.data);
    }
    console.log("count", await sandboxes.files.readText(sandbox.id, "/tmp/work/count.txt"));
  } finally {
    const ended = await sandboxes.delete(sandbox.id);
    console.log("sandbox", ended.state);
  }
}

void main();
