package server

import (
	"log/slog"
	"net"

	"k8s.io/klog/v2"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/kubernetes"
	"github.com/modbox/modbox/internal/worker"
)

// openPods returns the supplier of workers; nil if sandboxes run on the workers that join.
func (p *parts) openPods(cfg config.Config, authority *worker.Authority, listening net.Addr, log *slog.Logger) (fleet.Supplier, error) {
	if cfg.Kubernetes.PodTemplate == "" {
		return nil, nil
	}
	template, err := kubernetes.ReadTemplate(cfg.Kubernetes.PodTemplate)
	if err != nil {
		return nil, err
	}
	client, namespace, err := kubernetes.InCluster(p.version)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(log) // else client-go writes lines of text beside the log
	pods := podsConfig(cfg)
	pods.Client, pods.Namespace, pods.Template, pods.Log = client, namespace, template, log
	pods.Installation, pods.Epoch, pods.Current, pods.Token = p.instance, p.generation, p.store.Confirm, authority.TokenFor
	if cfg.Replica.Active > 1 { // limits are of all servers together
		pods.Own, pods.Join, pods.MaxPods = p.store.Ranges(), cfg.Replica.At(listening), max(1, pods.MaxPods/cfg.Replica.Active)
	}
	return kubernetes.New(pods), nil
}

// podsConfig returns the settings of Pods for sandboxes.
func podsConfig(cfg config.Config) kubernetes.Config {
	k := cfg.Kubernetes
	return kubernetes.Config{MaxPods: k.MaxPods, MemoryOverhead: int64(k.MemoryOverhead), DiskOverhead: int64(k.DiskOverhead), StartTimeout: k.StartTimeout.Std()}
}
