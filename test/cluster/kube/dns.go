package main

import (
	"context"
	"errors"
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

// names answers DNS queries of Pods for the names of services. It knows no other names.
type names struct {
	services  corelisters.ServiceLister
	endpoints discoverylisters.EndpointSliceLister
}

// serveDNS answers queries over UDP at the hub's address.
func (c *cluster) serveDNS(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(hubAddress, "53"))
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	n := &names{factory.Core().V1().Services().Lister(), factory.Discovery().V1().EndpointSlices().Lister()}
	factory.Start(nil) // until the process ends
	factory.WaitForCacheSync(ctx.Done())
	go func() {
		buffer := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(buffer)
			if err != nil {
				c.failed <- err
				return
			}
			if answer, err := n.answer(buffer[:size]); err == nil {
				_, _ = conn.WriteTo(answer, from) // the resolver asks again
			}
		}
	}()
	return nil
}

// answer returns the answer to a query.
func (n *names) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if len(m.Questions) != 1 {
		return nil, errors.New("not one question")
	}
	question := m.Questions[0]
	m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
	addresses, found := n.find(strings.ToLower(question.Name.String()))
	if !found {
		m.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA {
		for _, address := range addresses {
			if ip := net.ParseIP(address).To4(); ip != nil {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte(ip)},
				})
			}
		}
	}
	return m.Pack()
}

// find returns the addresses of SERVICE.NAMESPACE.svc.cluster.local, or of a Pod before it with a host name.
func (n *names) find(name string) (addresses []string, found bool) {
	local, ok := strings.CutSuffix(name, ".svc."+domain+".")
	if !ok {
		return nil, false
	}
	parts := strings.Split(local, ".")
	host := ""
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 {
		return nil, false
	}
	service, err := n.services.Services(parts[1]).Get(parts[0])
	if err != nil {
		return nil, false
	}
	if host == "" && service.Spec.ClusterIP != core.ClusterIPNone {
		return []string{service.Spec.ClusterIP}, true
	}
	slices, err := n.endpoints.EndpointSlices(parts[1]).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: parts[0]}))
	if err != nil {
		return nil, false
	}
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready || service.Spec.PublishNotReadyAddresses
			if ready && (host == "" || e.Hostname != nil && *e.Hostname == host) {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses, host == "" || len(addresses) > 0
}
