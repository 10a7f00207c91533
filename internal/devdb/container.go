package devdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// containerTimeout bounds the start of a container, which may have to fetch its
// image.
const containerTimeout = 10 * time.Minute

// container is a server that Docker runs. It is not started with --rm, because
// it must outlive Kill for Restart.
type container struct {
	docker string // path of the command
	name   string // that of the folder, so that a sweep knows it
	folder *folder
	logs   *process // docker logs --follow, which ends with the server
}

// startContainer starts a server in a container; before is why none of this
// machine could be used.
func (f *finder) startContainer(ctx context.Context, options Options, before error) (*Server, error) {
	if err := f.dockerHealthy(ctx); err != nil {
		return nil, f.explain(ctx, options.Version, errors.Join(before, err))
	}
	folder, err := newFolder(nil)
	if err != nil {
		return nil, err
	}
	host := &container{docker: f.docker, folder: folder, name: filepath.Base(folder.path)}
	s := &Server{options: options, password: newPassword(), folder: folder, host: host}
	ctx, cancel := context.WithTimeout(ctx, containerTimeout)
	defer cancel()
	err = s.choosePort()
	if err == nil {
		err = host.create(ctx, options, s.port, s.password)
	}
	if err == nil {
		err = s.startHost(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (f *finder) dockerHealthy(ctx context.Context) error {
	if f.docker == "" {
		return errors.New("look for docker: no such command")
	}
	if out, err := (*account)(nil).output(ctx, f.docker, "info", "--format", "{{.ServerVersion}}"); err != nil {
		return fmt.Errorf("ask docker info: %w%s", err, lastLines(out))
	}
	return nil
}

// create makes the container without starting it. The password travels in the
// environment: arguments can be read by every user of the machine.
func (c *container) create(ctx context.Context, options Options, port int, password string) error {
	if err := os.WriteFile(c.folder.join(dockerFile), nil, 0o600); err != nil {
		return fmt.Errorf("note the container: %w", err)
	}
	major := options.Version
	if major == "" {
		major = defaultMajor
	}
	args := []string{
		"create", "--name", c.name,
		"--publish", fmt.Sprintf("127.0.0.1:%d:5432", port),
		"--env", "POSTGRES_PASSWORD",
		"--env", "POSTGRES_INITDB_ARGS=--encoding=UTF8 --locale=C.UTF-8",
		"postgres:" + major + "-alpine", "postgres",
	}
	for _, key := range slices.Sorted(maps.Keys(options.Settings)) {
		args = append(args, "-c", key+"="+options.Settings[key])
	}
	return c.run(ctx, []string{"POSTGRES_PASSWORD=" + password}, args...)
}

func (c *container) start(ctx context.Context) error {
	if err := c.run(ctx, nil, "start", c.name); err != nil {
		return err
	}
	log, err := os.Create(c.logPath()) // docker repeats the whole log
	if err != nil {
		return fmt.Errorf("open server log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(c.docker, "logs", "--follow", c.name)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = (*account)(nil).attributes()
	if c.logs, err = launch(cmd); err != nil {
		return fmt.Errorf("run docker logs: %w", err)
	}
	return nil
}

func (c *container) ended() <-chan struct{} { return c.logs.done }
func (c *container) logPath() string        { return c.folder.join(logFile) }

// stop is a fast shutdown: the image declares SIGINT as its stop signal. A
// context that has ended makes it a kill.
func (c *container) stop(ctx context.Context) error {
	if c.logs == nil || c.logs.ended() {
		return nil
	}
	if c.run(ctx, nil, "stop", c.name) == nil && c.logs.wait(ctx, 10*time.Second) {
		return nil
	}
	return c.kill()
}

func (c *container) kill() error {
	if c.logs == nil || c.logs.ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.run(ctx, nil, "kill", c.name); err != nil {
		return err
	}
	if !c.logs.wait(ctx, 10*time.Second) {
		return c.logs.kill()
	}
	return nil
}

func (c *container) release() error { return removeContainer(c.docker, c.name) }

func removeContainer(docker, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, docker, "rm", "--force", "--volumes", name).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "No such container") {
		return fmt.Errorf("run docker rm: %w%s", err, lastLines(string(out)))
	}
	return nil
}

func (c *container) run(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.docker, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = (*account)(nil).attributes()
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run docker %s: %w%s", args[0], err, lastLines(string(out)))
	}
	return nil
}
