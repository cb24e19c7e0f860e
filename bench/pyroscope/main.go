// Command pyroscope is the receiving end of Pyroscope's /ingest, of its server's own modules: what its handler has made of a
// request, a line of JSON for each profile, goes to a file, for SFSAMPLE_PYROSCOPE=… go test -run TestPyroscopeServer ./cmd/sfsample.
// It is a module of its own, so that its modules are not ours: go mod tidy && go build, in its folder.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"connectrpc.com/connect"
	gokit "github.com/go-kit/log"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/pkg/distributor/model"
	"github.com/grafana/pyroscope/pkg/ingester/pyroscope"
)

// pushed is a profile as the handler hands it to what stores it.
type pushed struct {
	Labels  map[string]string
	Types   []string
	Sums    []int64 // of the samples, a number for each type
	Nanos   int64   // when it begins
	Samples int
}

// store keeps nothing but notes.
type store struct{ out *json.Encoder }

// Push implements pyroscope.PushService; profiles in pprof's format do not come this way.
func (s *store) Push(context.Context, *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	return nil, connect.NewError(connect.CodeInvalidArgument, errNotParsed)
}

type plain string

func (e plain) Error() string { return string(e) }

const errNotParsed = plain("the handler has not taken it for a pprof")

// PushParsed implements pyroscope.PushService.
func (s *store) PushParsed(_ context.Context, req *model.PushRequest) (*connect.Response[pushv1.PushResponse], error) {
	for _, series := range req.Series {
		for _, sample := range series.Samples {
			x, p := pushed{Labels: map[string]string{}}, sample.Profile.Profile
			for _, l := range series.Labels {
				x.Labels[l.Name] = l.Value
			}
			for _, t := range p.SampleType {
				x.Types = append(x.Types, p.StringTable[t.Type]+"/"+p.StringTable[t.Unit])
			}
			x.Sums, x.Samples, x.Nanos = make([]int64, len(x.Types)), len(p.Sample), p.TimeNanos
			for _, s := range p.Sample {
				for i, v := range s.Value {
					x.Sums[i] += v
				}
			}
			if err := s.out.Encode(&x); err != nil {
				return nil, err
			}
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: pyroscope ADDRESS FILE")
	}
	out, err := os.OpenFile(os.Args[2], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/ingest", pyroscope.NewPyroscopeIngestHandler(&store{json.NewEncoder(out)}, gokit.NewLogfmtLogger(os.Stderr)))
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
