package config

import "time"

// Kubernetes configures the Pods that the server makes for sandboxes; docs/kubernetes.md describes them.
type Kubernetes struct {
	PodTemplate     string   `yaml:"pod_template" doc:"Experimental: file with a PodTemplate of Kubernetes (YAML), from which the server, in a Pod itself, makes a worker Pod for each sandbox with the sandbox's limits (docs/kubernetes.md). It needs role control. Empty: sandboxes run on the workers that join."`
	MaxPods         int      `yaml:"max_pods" doc:"Number of Pods that the server has at the same time, for sandboxes, builds and the pool, including Pods that are being deleted. A workspace gets at most twice as many as it leaves free. A sandbox beyond that waits for kubernetes.start_timeout until a Pod is gone, and then fails to start. A ResourceQuota of the namespace can be the lower bound."`
	SandboxesPerPod int      `yaml:"sandboxes_per_pod" doc:"Number of sandboxes of a workspace that share a Pod, if they have the same image and limits. The Pod has the limits of as many, and is deleted with its last sandbox. Workspaces never share a Pod. Kubernetes enforces the limits of a sandbox in a shared Pod only in sum. 1: each sandbox has its own."`
	MemoryOverhead  Bytes    `yaml:"memory_overhead" doc:"Memory of a Pod for each of its sandboxes beside the memory limit of the sandbox, for the worker and gVisor."`
	DiskOverhead    Bytes    `yaml:"disk_overhead" doc:"Disk space (ephemeral storage) of a Pod for a sandbox beside the disk and memory limits of its sandboxes and their image. A blank box of the pool gets no image that is larger than three quarters of it."`
	StartTimeout    Duration `yaml:"start_timeout" doc:"Time limit for a new Pod of a sandbox to be scheduled, to pull its image and to connect to the server."`
}

func (k *Kubernetes) validate(bad func(name, format string, args ...any), role string) {
	if k.PodTemplate != "" && role != RoleControl {
		bad("kubernetes.pod_template", "it needs role control: only workers in Pods run sandboxes then")
	}
	within(bad, "kubernetes.max_pods", k.MaxPods, 1, 100_000)
	within(bad, "kubernetes.sandboxes_per_pod", k.SandboxesPerPod, 1, 64)
	within(bad, "kubernetes.memory_overhead", k.MemoryOverhead, 32<<20, 1<<40)
	within(bad, "kubernetes.disk_overhead", k.DiskOverhead, 0, 1<<40)
	within(bad, "kubernetes.start_timeout", k.StartTimeout, Duration(time.Second), Duration(time.Hour))
}
