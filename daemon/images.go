package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// image is what an image says, and where it is from.
type image struct {
	ID    string   `json:"id"`
	Names []string `json:"names,omitempty"` // repository:tag or repository@digest
	// Annotations are the manifest's, Labels the config's; io.dunnage. only.
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// imageSource is one place that knows containers and their images.
type imageSource interface {
	// imageOf is the image of a container, or nil if the source does not know
	// the container or it has none.
	imageOf(container string) (*image, error)
}

// imageOf asks the sources in turn.
func imageOf(sources []imageSource, container string) (*image, error) {
	for _, s := range sources {
		if found, err := s.imageOf(container); err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// from reports whether one of the image's names is of a repository that a
// pattern matches: component by component, ** at the end for all below.
func (i *image) from(patterns []string) bool {
	return slices.ContainsFunc(i.Names, func(name string) bool {
		ref, err := reference.ParseNormalizedNamed(name)
		return err == nil && slices.ContainsFunc(patterns, func(p string) bool {
			repository := ref.Name()
			if above, ok := strings.CutSuffix(p, "/**"); ok {
				parts := strings.Split(repository, "/")
				n := strings.Count(above, "/") + 1
				return len(parts) > n && matches(above, strings.Join(parts[:n], "/"))
			}
			return matches(p, repository)
		})
	})
}

// hear adds what an image says, if this node listens to it. What it says but
// can't be had is an error: the container does not start.
func (c *nodeConfig) hear(i *image, out *choice) error {
	if i == nil || !c.Images.Heard || len(c.Images.Repositories) > 0 && !i.from(c.Images.Repositories) {
		return nil
	}
	for _, says := range []map[string]string{i.Annotations, i.Labels} {
		for _, name := range policiesOf(says[wire.Annotation]) {
			out.addName(name)
		}
		text, ok := says[wire.AnnotationInline]
		if !ok {
			continue
		}
		switch c.Images.Inline {
		case inlineDeny:
			return refuse(wire.Refused, "image %.12s carries a policy (%s), which this node does not take: see images.inline in the configuration", i.ID, wire.AnnotationInline)
		case inlineSigned:
			if err := verify(c.Images.Keys, text, says[wire.AnnotationSignature]); err != nil {
				return refuse(wire.Refused, "the policy that image %.12s carries: %v", i.ID, err)
			}
		}
		out.inline = append(out.inline, inlinePolicy{"image", text})
	}
	return nil
}

// signedText is what is signed of an inline policy: a key that signs other
// things, too, signs no policy by accident. Newlines at the end don't count, as
// the shell's $(cat FILE) drops them.
func signedText(text string) []byte {
	return append([]byte("dunnage.io/v1 policy\n"), strings.TrimRight(text, "\n")...)
}

// verify checks an inline policy's signature.
func verify(keys []ed25519.PublicKey, text, signature string) error {
	if signature == "" {
		return fmt.Errorf("it is not signed: `dunnage policy sign` makes the annotation %s", wire.AnnotationSignature)
	}
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return fmt.Errorf("%s is not base64: %w", wire.AnnotationSignature, err)
	}
	for _, k := range keys {
		if ed25519.Verify(k, signedText(text), raw) {
			return nil
		}
	}
	return fmt.Errorf("its signature is by none of the %d keys of this node", len(keys))
}

// storage reads containers/storage, podman's and CRI-O's, on disk: they hold
// its locks while they wait for the hook. Its files are replaced as a whole.
type storage struct{ roots []string }

// storedContainer is an entry of containers.json.
type storedContainer struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
	Image string   `json:"image"`
}

// storedImage is an entry of images.json.
type storedImage struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
}

// container looks a container up; nil: it is not there.
func (s storage) container(id string) (*storedContainer, error) {
	return findStored(s.roots, "*-containers/*containers.json", func(c *storedContainer, _ string) bool { return c.ID == id })
}

func (s storage) imageOf(id string) (*image, error) {
	c, err := s.container(id)
	if err != nil || c == nil || c.Image == "" {
		return nil, err
	}
	var dir string
	found, err := findStored(s.roots, "*-images/images.json", func(i *storedImage, file string) bool {
		dir = filepath.Dir(file)
		return i.ID == c.Image
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("container %.12s: its image %.12s is in none of %s", id, c.Image, strings.Join(s.roots, ", "))
	}
	out := &image{ID: found.ID, Names: found.Names}
	var manifest struct {
		Annotations map[string]string `json:"annotations"`
		Config      struct {
			Digest string `json:"digest"`
		} `json:"config"`
	}
	if err := readJSON(filepath.Join(dir, found.ID, "manifest"), &manifest); err != nil {
		return nil, fmt.Errorf("the manifest of image %.12s: %w", found.ID, err)
	}
	out.Annotations = dunnageKeys(manifest.Annotations)
	if manifest.Config.Digest == "" {
		return out, nil // the old format, without a config of its own
	}
	var config struct {
		Config struct {
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
	}
	if err := readJSON(filepath.Join(dir, found.ID, bigDataName(manifest.Config.Digest)), &config); err != nil {
		return nil, fmt.Errorf("the config of image %.12s: %w", found.ID, err)
	}
	out.Labels = dunnageKeys(config.Config.Labels)
	return out, nil
}

func dunnageKeys(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, wire.Annotation) {
			out[key] = value
		}
	}
	return out
}

// bigDataName is the file in which containers/storage keeps an item: names that
// are not only digits, small letters and dots are in base64.
func bigDataName(key string) string {
	if strings.Trim(key, "0123456789abcdefghijklmnopqrstuvwxyz.") == "" {
		return key
	}
	return "=" + base64.StdEncoding.EncodeToString([]byte(key))
}

// findStored returns the first entry of the lists below the roots that fits.
func findStored[T any](roots []string, glob string, fits func(*T, string) bool) (*T, error) {
	for _, root := range roots {
		files, _ := filepath.Glob(filepath.Join(root, glob))
		for _, file := range files {
			var list []T
			if err := readJSON(file, &list); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, err
			}
			for i := range list {
				if fits(&list[i], file) {
					return &list[i], nil
				}
			}
		}
	}
	return nil, nil
}

// maxStored bounds what is read of a file of the storage, in bytes.
const maxStored = 64 << 20

// readJSON reads a file that others replace: one that was caught in between is
// read again.
func readJSON(file string, v any) error {
	var err error
	for range 3 {
		var data []byte
		if data, err = readBounded(file, maxStored); err != nil {
			return err
		}
		if err = json.Unmarshal(data, v); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s: %w", file, err)
}

// readBounded reads a regular file of at most so many bytes. What is looked at is
// what is read, and a FIFO holds nobody up.
func readBounded(file string, most int64) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: more than %d bytes", file, most)
	}
	return data, err
}
