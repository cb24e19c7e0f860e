package output

import (
	"encoding/binary"
	"errors"
)

// What the profiles of OTLP have not promised to keep stands here: where they are sent, and how their messages are
// laid out (opentelemetry/proto/profiles/v1development/profiles.proto and
// collector/profiles/v1development/profiles_service.proto, as of opentelemetry-proto 1.9 to 1.11, status alpha).

// OTLPPath is where a receiver of OTLP takes profiles, below its own address.
const OTLPPath = "/v1development/profiles"

// Fields, by message.
const (
	// ExportProfilesServiceRequest, and ProfilesData, which has the same.
	otlpResourceProfiles = 1
	otlpDictionary       = 2

	otlpResource      = 1 // ResourceProfiles
	otlpScopeProfiles = 2

	otlpScope    = 1 // ScopeProfiles
	otlpProfiles = 2

	otlpSampleType = 1 // Profile
	otlpSamples    = 2
	otlpTime       = 3
	otlpDuration   = 4
	otlpPeriodType = 5
	otlpPeriod     = 6
	otlpProfileID  = 7

	otlpTypeName = 1 // ValueType
	otlpTypeUnit = 2

	otlpSampleStack      = 1 // Sample
	otlpSampleAttributes = 2
	otlpSampleValues     = 4

	otlpMappings   = 1 // ProfilesDictionary
	otlpLocations  = 2
	otlpFunctions  = 3
	otlpLinks      = 4
	otlpStrings    = 5
	otlpAttributes = 6
	otlpStacks     = 7

	otlpMappingStart      = 1 // Mapping
	otlpMappingEnd        = 2
	otlpMappingOffset     = 3
	otlpMappingFile       = 4
	otlpMappingAttributes = 5

	otlpLocationMapping    = 1 // Location
	otlpLocationAddress    = 2
	otlpLocationLines      = 3
	otlpLocationAttributes = 4

	otlpLineFunction = 1 // Line
	otlpLineLine     = 2

	otlpFunctionName   = 1 // Function
	otlpFunctionSystem = 2
	otlpFunctionFile   = 3

	otlpStackLocations = 1 // Stack

	otlpLinkTrace = 1 // Link
	otlpLinkSpan  = 2

	otlpAttributeKey   = 1 // KeyValueAndUnit
	otlpAttributeValue = 2
)

// Attributes of profiles, by the semantic conventions of status development.
const (
	attrBuildID     = "process.executable.build_id.gnu"
	attrFrameType   = "profile.frame.type"
	frameNative     = "native"
	frameKernel     = "kernel"
	attrThreadName  = "thread.name"
	attrThreadState = "sfsample.state" // of ours: "running", or the system call
	attrThreadWait  = "sfsample.wait"  // of ours: what it waits for, with --waits
	attrThreadGIL   = "sfsample.gil"   // of ours: "held" by who held its interpreter's global lock
	attrStackEnd    = "sfsample.end"   // of ours: why a stack is cut
)

var errOTLPAnswer = errors.New("the answer is no ExportProfilesServiceResponse")

// OTLPRejected reads the answer of a receiver of OTLP: how many profiles it has refused, and why. An error: it is no
// such answer.
func OTLPRejected(answer []byte) (rejected int64, why string, err error) {
	partial, err := protoField(answer, 1)
	if err != nil || partial == nil {
		return 0, "", err
	}
	for b := partial; len(b) > 0; {
		field, number, text, rest, err := protoNext(b)
		if err != nil {
			return 0, "", err
		}
		switch field {
		case 1:
			rejected = int64(number)
		case 2:
			why = clean(string(text))
		}
		b = rest
	}
	return rejected, why, nil
}

// protoField is the message in a field, nil if there is none.
func protoField(b []byte, want int) (message []byte, err error) {
	for len(b) > 0 {
		field, _, text, rest, err := protoNext(b)
		if err != nil {
			return nil, err
		}
		if field == want && text != nil {
			message = text
		}
		b = rest
	}
	return message, nil
}

// protoNext takes the next field off a message: a number, or bytes.
func protoNext(b []byte) (field int, number uint64, text, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return 0, 0, nil, nil, errOTLPAnswer
	}
	b = b[n:]
	switch tag & 7 {
	case wireVarint:
		if number, n = binary.Uvarint(b); n <= 0 {
			return 0, 0, nil, nil, errOTLPAnswer
		}
		return int(tag >> 3), number, nil, b[n:], nil
	case wireFixed64, wireFixed32: // of fields that are not known here
		size := 8
		if tag&7 == wireFixed32 {
			size = 4
		}
		if len(b) < size {
			return 0, 0, nil, nil, errOTLPAnswer
		}
		return int(tag >> 3), 0, nil, b[size:], nil
	case wireBytes:
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return 0, 0, nil, nil, errOTLPAnswer
		}
		return int(tag >> 3), 0, b[n : n+int(size) : n+int(size)], b[n+int(size):], nil
	}
	return 0, 0, nil, nil, errOTLPAnswer
}
