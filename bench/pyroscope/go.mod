module sfsample/bench/pyroscope

go 1.26.0

require github.com/grafana/pyroscope v1.6.0

replace github.com/thanos-io/objstore => github.com/grafana/objstore v0.0.0-20231121154247-84f91ea90e72

replace github.com/hashicorp/memberlist => github.com/grafana/memberlist v0.3.1-0.20220708130638-bd88e10a3d91
