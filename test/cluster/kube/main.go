// Command kube has the programs of a Kubernetes cluster in one executable, and starts a cluster of two nodes for the tests of
// test/cluster. It is chosen by the first argument, or by the name of the executable, as kubectl is:
//
//	kube with DIR CMD...   runs a command with a cluster, see with.go; scripts/with-kubernetes.sh calls it
//	kube kubectl ARGS...
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs are the programs of Kubernetes, which read their arguments from [os.Args].
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 func() { run(kubectl.NewDefaultKubectlCommand()) },
}

// stages are the processes of a cluster. Each stage starts the next.
var stages = map[string]func(args []string) (code int, err error){
	"with": with,
	"hub":  hub,
	"node": node,
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

func main() {
	name := filepath.Base(os.Args[0])
	if _, ok := programs[name]; !ok && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	if program, ok := programs[name]; ok {
		program()
		return
	}
	stage, ok := stages[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kube: there is no program %q\n", name)
		os.Exit(2)
	}
	code, err := stage(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "kube %s: %v\n", name, err)
		code = 1
	}
	os.Exit(code)
}
