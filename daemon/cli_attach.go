package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/policy"
)

func attachCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "attach CONTAINER POLICY[,POLICY…]", Short: "Put policies on a container that runs already",
		Long: `Puts policies on a running container. CONTAINER is an id or a name that podman or
containerd knows, or pid:NUMBER for the init of any other. Tasks that run are
confined from now on; what they have open stays open. The policies last as long
as the container runs: for its next start give it the annotation.`,
		Example: "  dunnage attach pg postgres\n  dunnage attach pid:4711 postgres", Args: exactArgs(2)}
	container := containerFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		where, err := policy.ParseContainer(*container)
		if err != nil {
			return usageError{err}
		}
		a, err := resolve(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if *container != "" {
			a.Where = where
		}
		a.Policies = policiesOf(args[1])
		var line psLine
		if err := daemonOf(cmd).call("POST", "/v1/attach", a, &line); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%.12s %s: %s, %s\n", line.ID, line.Name, strings.Join(line.Policies, ","), line.State)
		return nil
	}
	return cmd
}

func detachCommand() *cobra.Command {
	return &cobra.Command{Use: "detach CONTAINER", Short: "Take the policies off a running container",
		Example: "  dunnage detach pg", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return daemonOf(cmd).call("POST", "/v1/detach?container="+args[0], nil, nil)
		}}
}

// resolve finds the init of a container by what its runtime calls it.
func resolve(ctx context.Context, ref string) (attachRequest, error) {
	if text, ok := strings.CutPrefix(ref, "pid:"); ok {
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 1 {
			return attachRequest{}, usageError{fmt.Errorf("pid %q: write pid: and the number of the container's init", text)}
		}
		return attachRequest{ID: ref, PID: pid}, nil
	}
	a, podmanErr := byPodman(ctx, ref)
	if podmanErr == nil {
		return a, nil
	}
	a, containerdErr := byContainerd(ctx, ref)
	if containerdErr == nil {
		return a, nil
	}
	return attachRequest{}, withHint(fmt.Errorf("no running container %q: podman: %w; containerd: %w", ref, podmanErr, containerdErr),
		"for another runtime write pid:NUMBER of the container's init")
}

func byPodman(ctx context.Context, ref string) (attachRequest, error) {
	out, err := exec.CommandContext(ctx, "podman", "container", "inspect", "--", ref).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return attachRequest{}, errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return attachRequest{}, err
	}
	var found []struct {
		ID     string `json:"Id"`
		Name   string
		State  struct{ Pid int }
		Config struct{ Annotations, Labels map[string]string }
	}
	if err := json.Unmarshal(out, &found); err != nil || len(found) != 1 {
		return attachRequest{}, fmt.Errorf("its answer has %d containers: %w", len(found), err)
	}
	if found[0].State.Pid == 0 {
		return attachRequest{}, errors.New("it does not run")
	}
	where, err := whereOf(found[0].Config.Annotations, found[0].Config.Labels)
	return attachRequest{ID: found[0].ID, Name: found[0].Name, PID: found[0].State.Pid, Where: where}, err
}

const containerdSocket = "/run/containerd/containerd.sock"

func byContainerd(ctx context.Context, ref string) (attachRequest, error) {
	if err := unix.Access(containerdSocket, unix.R_OK); err != nil {
		return attachRequest{}, fmt.Errorf("%s: %w", containerdSocket, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := containerd.New(containerdSocket)
	if err != nil {
		return attachRequest{}, err
	}
	defer c.Close()
	spaces, err := c.NamespaceService().List(ctx)
	if err != nil {
		return attachRequest{}, err
	}
	for _, ns := range spaces {
		in := namespaces.WithNamespace(ctx, ns)
		container, err := c.LoadContainer(in, ref)
		if err != nil {
			continue
		}
		task, err := container.Task(in, nil)
		if err != nil {
			return attachRequest{}, err
		}
		// Both are what the CRI gave it: the spec's annotations as a hook sees them.
		spec, err := container.Spec(in)
		if err != nil {
			return attachRequest{}, err
		}
		labels, err := container.Labels(in)
		if err != nil {
			return attachRequest{}, err
		}
		where, err := whereOf(spec.Annotations, labels)
		return attachRequest{ID: container.ID(), PID: int(task.Pid()), Where: where}, err
	}
	return attachRequest{}, errors.New("not known")
}

// openProcess opens a pidfd and the mount namespace of a pid.
func openProcess(pid int) (pidfd, nsfd int, err error) {
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		return -1, -1, fmt.Errorf("opening pid %d: %w", pid, err)
	}
	if nsfd, err = unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		closeFD(pidfd)
		return -1, -1, fmt.Errorf("opening the mount namespace of pid %d: %w", pid, err)
	}
	return pidfd, nsfd, nil
}
