import { Sandbox } from "modbox-sdk";

await Sandbox.with({ image: "modbox/data" }, async (sbx) => {
  await sbx.files.write("sales.csv", "month,amount\n1,10\n2,40\n3,30\n");
  await sbx.runCode("import pandas as pd; sales = pd.read_csv('sales.csv')");
  console.log((await sbx.runCode("int(sales.amount.sum())")).text); // the variable is still there
  console.log((await sbx.runCode("sales.plot('month')")).png !== undefined);
  await sbx.run("for i in 1 2 3; do echo line $i; sleep 0.1; done", { onStdout: (text) => process.stdout.write(text) });
  const server = await sbx.commands.start("python3 -m http.server 3000");
  console.log(await sbx.url(3000));
  await server.kill();
  await sbx.setTimeout(3600); // seconds from now, instead of 15 minutes after create
  await sbx.pause(); // keeps the memory; the next call resumes it
});
