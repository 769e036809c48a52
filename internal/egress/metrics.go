package egress

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// gateways counts what all gateways of a network carry.
type gateways struct {
	mu    sync.Mutex
	open  map[*Gateway]struct{} // guarded by mu
	ended Usage                 // sum of the gateways that are closed; guarded by mu
}

// add counts a gateway until remove.
func (s *gateways) add(g *Gateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[g] = struct{}{}
}

// remove keeps the counters of a gateway that is closed. It does nothing the second time.
func (s *gateways) remove(g *Gateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[g]; ok {
		delete(s.open, g)
		s.ended.add(g.Usage())
	}
}

// sum returns the number of open gateways, and the sum of the counters of all gateways so far.
func (s *gateways) sum() (open int, total Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total = s.ended
	total.Flows = 0
	for g := range s.open {
		total.add(g.Usage())
	}
	return len(s.open), total
}

func (u *Usage) add(v Usage) {
	u.SentBytes += v.SentBytes
	u.ReceivedBytes += v.ReceivedBytes
	u.Flows += v.Flows
	u.Denied += v.Denied
	u.DroppedFrames += v.DroppedFrames
}

// collector exports the sums of a network's gateways.
type collector struct {
	gateways                           *gateways
	open, flows, bytes, denied, frames *prometheus.Desc
}

// Collectors returns the metrics of the network.
func (n *Network) Collectors() []prometheus.Collector {
	return []prometheus.Collector{collector{
		gateways: &n.gateways,
		open:     prometheus.NewDesc("modbox_egress_sandboxes", "Boxes that are connected to a network.", nil, nil),
		flows:    prometheus.NewDesc("modbox_egress_flows", "Connections and UDP flows of sandboxes to the network.", nil, nil),
		bytes:    prometheus.NewDesc("modbox_egress_bytes_total", "Bytes of IP packets that sandboxes sent and received over their networks.", []string{"direction"}, nil),
		denied:   prometheus.NewDesc("modbox_egress_denied_total", "Flows that the closed address ranges or a policy refused.", nil, nil),
		frames:   prometheus.NewDesc("modbox_egress_dropped_frames_total", "Frames of sandboxes that were malformed, forged or too many.", nil, nil),
	}}
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.open, c.flows, c.bytes, c.denied, c.frames} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	open, total := c.gateways.sum()
	ch <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(open))
	ch <- prometheus.MustNewConstMetric(c.flows, prometheus.GaugeValue, float64(total.Flows))
	ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(total.SentBytes), "sent")
	ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(total.ReceivedBytes), "received")
	ch <- prometheus.MustNewConstMetric(c.denied, prometheus.CounterValue, float64(total.Denied))
	ch <- prometheus.MustNewConstMetric(c.frames, prometheus.CounterValue, float64(total.DroppedFrames))
}
