package triage

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// plantedSecrets are texts with one secret each, and the part that must never
// survive. Words and quotes around them end where a blank does.
func plantedSecrets() map[string]string {
	return map[string]string{
		hfToken:                                         random36,
		openAIKey:                                       random48,
		projectKey:                                      random36,
		accessKey:                                       accessKey[4:],
		githubToken:                                     random36,
		gitlabToken:                                     gitlabToken[8:],
		slackToken:                                      random36,
		webTokenJWT:                                     "q7Lr2Xv9Tn4Kd8Wb3Mf6Hs1Jp5",
		" Authorization: Basic " + basicAuth:            basicAuth,
		" Bearer " + password:                           password,
		" --api-key " + password:                        password,
		" --api-key=" + password:                        password,
		" 'api_key': ['" + password + "']":              password,
		" api_key='" + password + "'":                   password,
		" HF_TOKEN=" + password:                         password,
		" OPENAI_API_KEY=" + password:                   password,
		" X_SECRET_Y=" + password:                       password,
		" PASSWORD=" + password:                         password,
		" aws_secret_access_key = " + awsSecret:         awsSecret,
		" redis://user:" + password + "@db/0":           password,
		" https://" + password + "@db/0":                password,
		" https://h/?token=" + password:                 password,
		" https://h/?a=b&X-Amz-Signature=0a" + password: password,
		"-----BEGIN PRIVATE KEY-----\n" + random48 + "\n-----END PRIVATE KEY-----": random48,
	}
}

func FuzzMaskSecrets(f *testing.F) {
	f.Add("", "", 10)
	f.Add("non-default args: {'model': 'm', ", ", 'port': 8000}", 40)
	f.Add("Namespace(api_key='", "')", 12)
	f.Add("https://user:", "@host", 0)
	f.Add("password: \"", "\\\" tail", 7)
	f.Add("-----BEGIN RSA PRIVATE KEY-----", "-----END", 3)
	f.Add("é ключ=", "\xff ***", 5)
	f.Add("['--api-key', '", "', '--port']", 99)
	planted := plantedSecrets()
	f.Fuzz(func(t *testing.T, before, after string, limit int) {
		checkMask(t, before+after)
		for text, secret := range planted {
			if strings.Contains(before+after, secret) {
				continue
			}
			// A blank or the text's end closes the planted text.
			line := before + text + " " + after
			if masked := checkMask(t, line); strings.Contains(masked, secret) {
				t.Errorf("%q survives in %q", secret, masked)
			}
			if clipped := Clip(line, limit); len(clipped) > max(limit, 0) || strings.Contains(clipped, secret) ||
				utf8.ValidString(line) && !utf8.ValidString(clipped) {
				t.Errorf("Clip(%q, %d) = %q", line, limit, clipped)
			}
		}
	})
}

func checkMask(t *testing.T, text string) string {
	masked := MaskSecrets(text)
	if again := MaskSecrets(masked); again != masked {
		t.Errorf("MaskSecrets(%q) = %q, and masked again %q", text, masked, again)
	}
	if utf8.ValidString(text) && !utf8.ValidString(masked) {
		t.Errorf("MaskSecrets(%q) = %q is not UTF-8", text, masked)
	}
	return masked
}

func FuzzMaskMessage(f *testing.F) {
	for _, text := range []string{
		"", "CUDA out of memory. Tried 2.50 GiB, 'a b' \"c\" at 10.0.0.1:80", "RuntimeError('it''s 5')", "<num>5 -3 +4.5e-6 1,234",
		"/a/b ./c a/b/c x'-5 'y'/z 'q'::1", "0000:3b:00.0 fe80::1 2025-11-30T20:24:11Z", "v1.2.3 1.2rc1 5m 1h2m 7µs",
		"Worker_TP3_0a1b2c3d sm_90 \xff\xfe é5", "'a\nb' \"c 'd e' f\"",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		masked := MaskMessage(text)
		if again := MaskMessage(masked); again != masked {
			t.Errorf("MaskMessage(%q) = %q, and masked again %q", text, masked, again)
		}
		if len(masked) > 5*len(text) {
			t.Errorf("MaskMessage(%q) has %d bytes", text, len(masked))
		}
		if utf8.ValidString(text) && !utf8.ValidString(masked) {
			t.Errorf("MaskMessage(%q) = %q is not UTF-8", text, masked)
		}
		first := Fingerprint(text, []Frame{{text, text}}, text)
		if first != Fingerprint(text, []Frame{{text, text}}, text) || len(first) != len("v1:")+16 {
			t.Errorf("Fingerprint of %q = %q", text, first)
		}
	})
}
