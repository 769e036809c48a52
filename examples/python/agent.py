from modbox import Sandbox

with Sandbox.create(image="modbox/data") as sbx:
    sbx.files.write("sales.csv", "month,amount\n1,10\n2,40\n3,30\n")
    sbx.run_code("import pandas as pd; sales = pd.read_csv('sales.csv')")
    print(sbx.run_code("int(sales.amount.sum())").text)  # the variable is still there
    print(sbx.run_code("sales.plot('month')").png is not None)
    sbx.run("for i in 1 2 3; do echo line $i; sleep 0.1; done", on_stdout=lambda text: print(text, end=""))
    server = sbx.commands.start("python3 -m http.server 3000")
    print(sbx.url(3000))
    server.kill()
    sbx.set_timeout(3600)  # seconds from now, instead of 15 minutes after create
    sbx.pause()  # keeps the memory; the next call resumes it
