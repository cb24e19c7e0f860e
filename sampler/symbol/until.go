package symbol

import (
	"context"
	"io"
)

// over reports whether ctx, which may be nil, is done.
func over(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

// untilReader fails once its context is done.
type untilReader struct {
	ctx context.Context // may be nil
	r   io.Reader
}

func (u untilReader) Read(b []byte) (int, error) {
	if over(u.ctx) {
		return 0, errNoTime
	}
	return u.r.Read(b)
}
