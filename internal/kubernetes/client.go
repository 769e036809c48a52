package kubernetes

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Client makes, deletes and watches the Pods of a namespace. Its methods and their errors are as in client-go.
type Client interface {
	// Create makes a Pod.
	Create(ctx context.Context, pod *corev1.Pod, o metav1.CreateOptions) (*corev1.Pod, error)
	// Delete begins the end of a Pod.
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
	// List returns Pods.
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	// Watch returns the changes of Pods.
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// namespaceFile is the file of a Pod with the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// InCluster returns a client with the service account of this Pod, for the namespace of this Pod, and that namespace.
func InCluster(version string) (Client, string, error) {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, "", fmt.Errorf("the service account of the server's Pod: %w", err)
	}
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return nil, "", fmt.Errorf("the namespace of the server's Pod: %w", err)
	}
	cfg.UserAgent = "modbox/" + version
	name := strings.TrimSpace(string(namespace))
	client, err := NewClient(cfg, name)
	return client, name, err
}

// pods is a client that knows Pods alone. client-go/kubernetes, which knows all kinds, adds 40 MB to the program, and client-go/gentype 4 MB.
type pods struct {
	api       rest.Interface
	namespace string
	options   runtime.ParameterCodec
}

// NewClient returns a client for a namespace.
func NewClient(cfg *rest.Config, namespace string) (Client, error) {
	kinds := runtime.NewScheme()
	kinds.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{})
	metav1.AddToGroupVersion(kinds, corev1.SchemeGroupVersion)
	cfg.QPS, cfg.Burst = 100, 200
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(kinds).WithoutConversion()
	api, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of Kubernetes: %w", err)
	}
	return pods{api, namespace, runtime.NewParameterCodec(kinds)}, nil
}

// Create implements [Client].
func (p pods) Create(ctx context.Context, pod *corev1.Pod, o metav1.CreateOptions) (*corev1.Pod, error) {
	made := &corev1.Pod{}
	return made, p.api.Post().Namespace(p.namespace).Resource("pods").VersionedParams(&o, p.options).Body(pod).Do(ctx).Into(made)
}

// Delete implements [Client].
func (p pods) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return p.api.Delete().Namespace(p.namespace).Resource("pods").Name(name).Body(&o).Do(ctx).Error()
}

// List implements [Client].
func (p pods) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	return list, p.api.Get().Namespace(p.namespace).Resource("pods").VersionedParams(&o, p.options).Do(ctx).Into(list)
}

// Watch implements [Client].
func (p pods) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return p.api.Get().Namespace(p.namespace).Resource("pods").VersionedParams(&o, p.options).Watch(ctx)
}
