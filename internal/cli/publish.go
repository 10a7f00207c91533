package cli

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// maxPayload is the longest text that PostgreSQL sends in one message, roughly.
const maxPayload = 1<<30 - 1<<16

type publishFlags struct {
	token        tokenFlags
	file         string
	contentType  string
	operationKey string
	policy       enumFlag
	sourceAsOf   string
	maxSourceAge durationFlag
	thenRelease  bool
	allowEmpty   bool
}

type publishAnswer struct {
	procedures.PublishResult
	Resource     string `json:"resource"`
	Owner        string `json:"owner"`
	Generation   int64  `json:"generation"`
	OperationKey string `json:"operation_key"`
}

func newPublishCommand(a *app) *cobra.Command {
	var f publishFlags
	cmd := &cobra.Command{
		Use:     "publish [RESOURCE]",
		GroupID: groupLease,
		Short:   "Store a result, if this acquisition still counts",
		Long: `Stores the content of --file, or standard input, as the resource's result, if the acquisition that the token
names still counts. Exit code 10 means that it was rejected; the reason is in the answer. The content is UTF-8
text of up to 1 GB, stored as it is: it is not parsed, whatever --content-type says.

The operation key names this call within its generation: repeated with the same key and content it answers
"replayed" with the first revision, whatever has happened since.`,
		Example: `  fencectl publish report:42 --owner w1 --generation 7 --file report.json
  build-report > r.csv && fencectl publish report:42 --owner w1 --generation 7 --file r.csv \
      --content-type text/csv --then-release
  fencectl publish report:42 --owner w1 --generation 7 --file r.json \
      --source-as-of 2026-01-31T08:00:00Z --max-source-age 15m --policy unexpired`,
		Args: atMost(1),
	}
	f.token.register(cmd)
	addPolicy(cmd, &f.policy)
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "-", `file with the result, "-" for standard input`)
	flags.StringVar(&f.contentType, "content-type", "application/json", "what the result is")
	flags.StringVar(&f.operationKey, "operation-key", "", "name of this call: repeated with it, the call gets the first answer (default: a new one)")
	flags.StringVar(&f.sourceAsOf, "source-as-of", "", "time of the data that the result was made from, RFC 3339")
	flags.Var(&f.maxSourceAge, "max-source-age", "refuse data that is older than this (needs --source-as-of)")
	flags.BoolVar(&f.allowEmpty, "allow-empty", false, "publish even an empty result, which a program that failed may have left")
	flags.BoolVar(&f.thenRelease, "then-release", false, "release the lease in the same commit")
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return a.publish(ctx, cmd, args, f)
	})
	return cmd
}

func (a *app) publish(ctx context.Context, cmd *cobra.Command, args []string, f publishFlags) error {
	params, err := a.publishParams(cmd, args, f)
	if err != nil {
		return err
	}
	err = a.withDatabase(ctx, func(db *database) error {
		answer := publishAnswer{
			Resource: params.Resource, Owner: params.Owner, Generation: params.Generation, OperationKey: *params.OperationKey,
		}
		err := db.write(ctx, func(p procedures.Procedures) (err error) {
			answer.PublishResult, err = p.Publish(ctx, params)
			return err
		})
		if err != nil {
			return err
		}
		return a.answer(answer, answer.Outcome, answer.Reason, procedures.Accepted, procedures.Replayed)
	})
	return withID(err, &named{operationKey: *params.OperationKey})
}

func (a *app) publishParams(cmd *cobra.Command, args []string, f publishFlags) (p procedures.PublishParams, err error) {
	if p.Token, err = a.token(cmd, args, f.token); err != nil {
		return p, err
	}
	if p.ContentType = f.contentType; p.ContentType == "" {
		return p, usagef("--content-type is empty")
	}
	key := f.operationKey
	if !cmd.Flags().Changed("operation-key") {
		key = uuid.NewString()
	}
	p.OperationKey, p.Policy, p.ThenRelease = &key, f.policy.value, f.thenRelease
	if cmd.Flags().Changed("source-as-of") {
		if p.SourceAsOf, err = parseTime("--source-as-of", f.sourceAsOf); err != nil {
			return p, err
		}
	}
	if f.maxSourceAge.given {
		if p.SourceAsOf == nil {
			return p, usagef("--max-source-age needs --source-as-of")
		}
		age := f.maxSourceAge.ms()
		p.MaxSourceAgeMS = &age
	}
	// Last: whoever types on a terminal learns of the other mistakes first.
	if p.Payload, err = a.payload(f.file); err != nil {
		return p, err
	}
	if p.Payload == "" && !f.allowEmpty {
		return p, usagef("the payload is empty: nothing was published; --allow-empty publishes it all the same")
	}
	return p, checkText("the payload", p.Payload)
}

// payload reads the result that is to be published.
func (a *app) payload(name string) (string, error) {
	in := a.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", usagef("read --file: %v", err)
		}
		defer file.Close()
		in = file
	} else if a.dsnFile == "-" && !a.dsnGiven() {
		return "", usagef("--dsn-file and --file cannot both read standard input")
	} else if stdin, ok := in.(stoppable); ok && stdin.typed() {
		a.note("reading the payload from the terminal; end it with Ctrl-D")
	}
	content, err := io.ReadAll(io.LimitReader(in, maxPayload+1))
	if err != nil {
		return "", cannotRead("the payload", err)
	}
	if len(content) > maxPayload {
		return "", usagef("the payload is larger than %d bytes", maxPayload)
	}
	return string(content), nil
}

// parseTime reads RFC 3339, and what psql prints.
func parseTime(flag, text string) (*time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return &t, nil
		}
	}
	return nil, usagef("%s %q is not an RFC 3339 time like 2026-01-31T08:00:00Z", flag, text)
}
