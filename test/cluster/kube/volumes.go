package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// storageClass is the name of the default class of volumes. A volume is a directory of the cluster, which all nodes can see.
const storageClass = "directory"

// serveVolumes makes a volume for each claim of the default class.
func (c *cluster) serveVolumes(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	class := &storage.StorageClass{
		ObjectMeta:  meta.ObjectMeta{Name: storageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "modbox.test/directory",
	}
	if _, err := client.StorageV1().StorageClasses().Create(ctx, class, meta.CreateOptions{}); err != nil {
		return err
	}
	made := func(object any) {
		if err := c.makeVolume(client, object.(*core.PersistentVolumeClaim)); err != nil && !apierrors.IsAlreadyExists(err) {
			fmt.Fprintln(os.Stderr, "kube: volume:", err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: made, UpdateFunc: func(_, claim any) { made(claim) },
	})
	factory.Start(nil) // until the process ends
	return err
}

func (c *cluster) makeVolume(client *kubernetes.Clientset, claim *core.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != storageClass {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	dir := filepath.Join(c.dir, "volumes", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil { // the user of a Pod does not own it
		return err
	}
	_, err := client.CoreV1().PersistentVolumes().Create(context.Background(), &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: core.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: storageClass,
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: dir}},
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain,
			ClaimRef:                      &core.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}, meta.CreateOptions{})
	return err
}
