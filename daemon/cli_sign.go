package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/dunnage-project/dunnage/hook/wire"
)

func signCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sign FILE", Short: "Sign a policy that an image is to carry",
		Long: `Signs a policy for images.inline: signed of the node's configuration, and prints
the annotation that goes into the image beside ` + wire.AnnotationInline + `.`,
		Example: `  openssl genpkey -algorithm ed25519 -out key.pem
  openssl pkey -in key.pem -pubout -out /etc/dunnage/build.pub
  buildah config --annotation io.dunnage.policy.inline="$(cat app.yaml)" \
    --annotation "$(dunnage policy sign --key key.pem app.yaml)" CONTAINER`, Args: exactArgs(1)}
	keyFile := cmd.Flags().String("key", "", "file of the ed25519 private key, PKCS #8 PEM")
	_ = cmd.MarkFlagRequired("key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		if _, err := (inlinePolicy{args[0], string(text)}).parse(); err != nil {
			return err
		}
		key, err := readPrivateKey(*keyFile)
		if err != nil {
			return withHint(fmt.Errorf("%s: %w", *keyFile, err), "`openssl genpkey -algorithm ed25519` makes one")
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s=%s\n", wire.AnnotationSignature, base64.StdEncoding.EncodeToString(ed25519.Sign(key, signedText(string(text)))))
		return nil
	}
	return cmd
}

func readPrivateKey(file string) (ed25519.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if k, ok := key.(ed25519.PrivateKey); ok {
		return k, nil
	}
	return nil, fmt.Errorf("it is %T, not an ed25519 key", key)
}
