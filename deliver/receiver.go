package deliver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sfsample/output"
)

// Receiver is where messages are posted.
type Receiver struct {
	url     *url.URL
	header  http.Header
	plain   bool // bodies go without compression
	timeout time.Duration
	client  *http.Client
	otlp    bool
}

// Verdict is what became of a message.
type Verdict struct {
	Err    error         // nil: the receiver has taken it
	Retry  bool          // it may take it later
	After  time.Duration // and asks not to try before
	Kind   string        // the same for errors of the same kind
	Remedy string
	// Of one that it has taken: what it had to say, and how many profiles of it it has rejected.
	Note     string
	Rejected int64
}

// String is the address, as far as it is no secret.
func (r *Receiver) String() string { return Discreet(r.url.String()) }

// ID is the same for receivers of one address, whoever sends.
func (r *Receiver) ID() string {
	u := *r.url
	u.User = nil
	return u.String()
}

var (
	userOf  = regexp.MustCompile(`(://|(?:otlp|pyroscope)=(?:\w+://)?)\S*@`)
	queryOf = regexp.MustCompile(`(://[^\s?]*\?)[^\s"']+`)
)

// Discreet is a text with addresses without what may be a secret in them: a user, a password, a query.
func Discreet(text string) string {
	return queryOf.ReplaceAllString(userOf.ReplaceAllString(text, "${1}…"), "${1}…")
}

// NewOTLP returns a receiver of OTLP's profiles: at address, or if that is empty at the one that the environment names
// (OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT), else on this machine. An address without a path gets
// the one of profiles. Headers, compression, time and certificates are those of OTEL_EXPORTER_OTLP_….
func NewOTLP(address string, getenv func(string) string) (*Receiver, error) {
	name := "otlp=" + address
	bare := address != ""
	if address == "" {
		if address, name = getenv("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT"), "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT"; address == "" {
			if address, name = getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "OTEL_EXPORTER_OTLP_ENDPOINT"; address == "" {
				address, name = "http://localhost:4318", "otlp="
			}
			address = strings.TrimSuffix(address, "/") + output.OTLPPath
		}
	}
	r, err := newReceiver(name, address)
	if err != nil {
		return nil, err
	}
	if bare && strings.Trim(r.url.Path, "/") == "" {
		r.url.Path = output.OTLPPath
	}
	r.otlp = true
	if err := r.environment(getenv); err != nil {
		return nil, err
	}
	return r, nil
}

// NewPyroscope returns a receiver of Pyroscope's ingest API below address. Who sends is told by the variables that its own agents
// have: PYROSCOPE_TENANT_ID (the header is that of "About tenant IDs" in its documentation), PYROSCOPE_AUTH_TOKEN, or
// PYROSCOPE_BASIC_AUTH_USER and …_PASSWORD.
func NewPyroscope(address string, getenv func(string) string) (*Receiver, error) {
	r, err := newReceiver("pyroscope="+address, address)
	if err != nil {
		return nil, err
	}
	r.url = r.url.JoinPath("ingest")
	set := func(variable, header, before, v string) {
		switch {
		case v == "":
		case !isHeader(header, v):
			err = fmt.Errorf("%s: it holds a control character (set it anew)", variable)
		default:
			r.header.Set(header, before+v)
		}
	}
	set("PYROSCOPE_TENANT_ID", "X-Scope-OrgID", "", getenv("PYROSCOPE_TENANT_ID"))
	set("PYROSCOPE_AUTH_TOKEN", "Authorization", "Bearer ", getenv("PYROSCOPE_AUTH_TOKEN"))
	if user := getenv("PYROSCOPE_BASIC_AUTH_USER"); user != "" {
		both := user + ":" + getenv("PYROSCOPE_BASIC_AUTH_PASSWORD")
		set("PYROSCOPE_BASIC_AUTH_USER", "Authorization", "Basic ", base64.StdEncoding.EncodeToString([]byte(both)))
	}
	return r, err
}

func newReceiver(name, address string) (*Receiver, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s: it is no address of a receiver (try: http://HOST:4318, https://HOST/PATH)", Discreet(name))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	r := &Receiver{url: u, header: http.Header{}, timeout: 10 * time.Second}
	r.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r, nil
}

// environment takes what the OpenTelemetry specification has exporters take from the environment. What is meant for profiles
// goes before what is meant for all.
func (r *Receiver) environment(getenv func(string) string) error {
	get := func(what string) (name, value string) {
		for _, name = range []string{"OTEL_EXPORTER_OTLP_PROFILES_" + what, "OTEL_EXPORTER_OTLP_" + what} {
			if value = getenv(name); value != "" {
				break
			}
		}
		return name, value
	}
	if name, v := get("PROTOCOL"); v != "" && v != "http/protobuf" {
		return fmt.Errorf("%s=%s: profiles are sent by http/protobuf only (unset it, or set it to that)", name, v)
	}
	switch name, v := get("COMPRESSION"); v {
	case "", "gzip":
	case "none":
		r.plain = true
	default:
		return fmt.Errorf("%s=%s: is gzip or none", name, v)
	}
	if name, v := get("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms < 1 || ms > 1e7 {
			return fmt.Errorf("%s=%s: is no time in milliseconds (1 to 10000000)", name, v)
		}
		r.timeout = time.Duration(ms) * time.Millisecond
	}
	name, v := get("HEADERS")
	pairs, err := KeyValues(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, kv := range pairs {
		if !isHeader(kv[0], kv[1]) {
			return fmt.Errorf("%s: %q is no header's name, or its value holds a control character (see how it is written)", name, kv[0])
		}
		r.header.Set(kv[0], kv[1])
	}
	return r.certificates(get)
}

// isHeader tells whether a header may have that name and value (RFC 9110, 5.1 and 5.5).
func isHeader(name, value string) bool {
	token := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}
	control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return !token(c) }) && !strings.ContainsFunc(value, control)
}

// KeyValues reads "a=b,c=d", as OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES have it: values are
// percent-encoded.
func KeyValues(text string) (list [][2]string, err error) {
	for _, word := range strings.Split(text, ",") {
		if strings.TrimSpace(word) == "" {
			continue
		}
		key, value, ok := strings.Cut(word, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil || strings.ContainsAny(key+value, "\r\n") {
			if !ok {
				key = fmt.Sprintf("%d characters", len(word)) // they may be a part of a secret
			}
			return nil, fmt.Errorf("%q is no NAME=VALUE with %%XX for special characters, commas among them (write it so)", key)
		}
		list = append(list, [2]string{key, value})
	}
	return list, nil
}

// certificates reads those of the other side, and ours.
func (r *Receiver) certificates(get func(string) (string, string)) error {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if name, file := get("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: %s holds no certificate in PEM form", name, file)
		}
	}
	certName, cert := get("CLIENT_CERTIFICATE")
	_, key := get("CLIENT_KEY")
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("%s and its key: %w", certName, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	r.client.Transport.(*http.Transport).TLSClientConfig = c
	return nil
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// Post sends a message and waits for the answer, for as long as the receiver may take.
func (r *Receiver) Post(ctx context.Context, m *Message) Verdict {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	body, zipped := m.Body, m.Gzip
	if r.plain && zipped {
		var err error
		if body, err = unzip(body); err != nil {
			return Verdict{Err: err, Kind: "damaged", Remedy: "it was damaged on the disk"}
		}
		zipped = false
	}
	u := *r.url
	if m.Query != "" {
		u.RawQuery = m.Query
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return Verdict{Err: err, Kind: "request", Remedy: "give another address"}
	}
	req.Header = r.header.Clone()
	req.Header.Set("Content-Type", m.ContentType)
	req.Header.Set("User-Agent", "sfsample")
	if zipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return r.unreached(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return r.unreached(err)
	}
	return r.judge(resp, answer)
}

func unzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxMessage))
}

// unreached is what a failure of the network or of TLS means.
func (r *Receiver) unreached(err error) Verdict {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	v := Verdict{Err: err, Retry: true, Kind: "network", Remedy: "see that the receiver runs, and its address"}
	var dns *net.DNSError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		v.Err, v.Kind = fmt.Errorf("no answer within %v", r.timeout), "silence"
		if v.Remedy = "see that it is the receiver's address"; r.otlp {
			v.Remedy += ", or set OTEL_EXPORTER_OTLP_TIMEOUT, in milliseconds"
		}
	case errors.As(err, &dns):
		v.Kind, v.Remedy = "name", "see the name in the address"
	case errors.As(err, &verify):
		variable := "SSL_CERT_FILE"
		if r.otlp {
			variable = "OTEL_EXPORTER_OTLP_CERTIFICATE"
		}
		v.Kind, v.Remedy = "certificate", variable+" names the file of the authority that has signed it"
	case errors.Is(err, http.ErrSchemeMismatch):
		v.Kind, v.Remedy = "tls", "it does not speak TLS: write http:// in its address"
	}
	return v
}

// judge tells what an answer means. What may be tried again is as OTLP has it ("Retryable Response Codes"); Pyroscope tells
// nothing of that, and is tried again whenever the fault is its own.
func (r *Receiver) judge(resp *http.Response, answer []byte) Verdict {
	code := resp.StatusCode
	v := Verdict{Err: errors.New(resp.Status), Kind: resp.Status}
	switch {
	case code >= 200 && code < 300 && !r.otlp:
		return Verdict{}
	case code >= 200 && code < 300:
		rejected, why, err := output.OTLPRejected(answer)
		if kind := resp.Header.Get("Content-Type"); err == nil && len(answer) > 0 && kind != "" && !strings.HasPrefix(kind, "application/x-protobuf") {
			err = fmt.Errorf("the answer is %s", output.Printable(kind)) // OTLP/HTTP Response
		}
		if err != nil {
			v.Err, v.Retry = fmt.Errorf("%s, but %w", resp.Status, err), true
			v.Remedy = "it is no receiver of OTLP: see its address"
			return v
		}
		if rejected != 0 || why != "" {
			return Verdict{Note: fmt.Sprintf("%d profiles were rejected: %s", rejected, output.Printable(why)), Rejected: max(rejected, 0)}
		}
		return Verdict{}
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable ||
		code == http.StatusGatewayTimeout || !r.otlp && code >= 500:
		v.Retry, v.After, v.Remedy = true, retryAfter(resp.Header.Get("Retry-After"), time.Now()), "it is busy, or see what its log says"
		if v.After > 0 {
			v.Remedy = fmt.Sprintf("it has asked for %v until then", v.After)
		}
	case code >= 300 && code < 400:
		v.Retry, v.Remedy = true, "it has moved to "+output.Printable(resp.Header.Get("Location"))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		if v.Remedy = "OTEL_EXPORTER_OTLP_HEADERS may hold what it asks for"; !r.otlp {
			v.Remedy = "PYROSCOPE_AUTH_TOKEN, PYROSCOPE_BASIC_AUTH_USER with PYROSCOPE_BASIC_AUTH_PASSWORD, or PYROSCOPE_TENANT_ID tell it who sends"
		}
	case code == http.StatusNotFound:
		v.Remedy = "see the path in its address, and that it takes profiles"
	default:
		v.Remedy = "see what the receiver's log says"
	}
	return v
}

// longestAfter bounds for how long a receiver can put us off.
const longestAfter = time.Hour

// retryAfter reads a Retry-After: seconds, or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if s, err := strconv.Atoi(text); err == nil && s > 0 {
		return min(time.Duration(min(s, 1e6))*time.Second, longestAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), longestAfter)
	}
	return 0
}
