package triage

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The secrets of the tests are made up. They are put together at run time, so that
// no scanner takes this file for a leak.
const (
	random36 = "Zq7Lr2Xv9Tn4Kd8Wb3Mf6Hs1Jp5Cg0Ya2Ue4"
	random48 = "Vb8Nq2Lx7Rt4Kz9Wd3Mf6Hs1Jp5Cg0Ya2Ue4Qo7Ii1Dd6Ss9"
)

var (
	hfToken     = "hf_" + random36
	openAIKey   = "sk-" + random48
	projectKey  = "sk-proj-" + random36 + "_" + random36
	accessKey   = "AKIA" + "Q7RT2LMX5ZKW3NPD"
	awsSecret   = "wJ4lrXUtn/FEMIk7MDENG+bPxRfiCYz8q2Lm5VdT"
	githubToken = "ghp_" + random36
	gitlabToken = "glpat-" + "x7Kq2Lr9_Tn4Wd8Mf6Hs"
	slackToken  = "xoxb-" + "204857203948-" + random36
	webTokenJWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiI0MiJ9." + "q7Lr2Xv9Tn4Kd8Wb3Mf6Hs1Jp5"
	basicAuth   = "dXNlcjpodW50ZXIy"
	password    = "hunter2Correct"
)

func TestMaskSecrets(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"hugging face", "token " + hfToken + ", user", "token ***, user"},
		{"hugging face, glued", "x" + hfToken, "x***"},
		{"hugging face, cut by the log", "using hf_Zq7Lr2Xv", "using ***"},
		{"openai", "Incorrect API key provided: " + openAIKey + ".", "Incorrect API key provided: ***."},
		{"openai project", `{"k":"` + projectKey + `"}`, `{"k":"***"}`},
		{"openai behind an escape", `\n` + openAIKey + `\n`, `\n***\n`},
		{"aws id", "for " + accessKey + " denied", "for *** denied"},
		{"aws secret", "aws_secret_access_key = " + awsSecret, "aws_secret_access_key = ***"},
		{"aws secret, camel", `"SecretAccessKey": "` + awsSecret + `",`, `"SecretAccessKey": "***",`},
		{"github", "git clone with " + githubToken, "git clone with ***"},
		{"gitlab", "(" + gitlabToken + ")", "(***)"},
		{"slack", "post " + slackToken + " failed", "post *** failed"},
		{"jwt", "got " + webTokenJWT + " expired", "got *** expired"},
		{"bearer", "header Bearer " + password + ", 401", "header Bearer ***, 401"},
		{"bearer header", "Authorization: Bearer EMPTY", "Authorization: Bearer ***"},
		{"bearer dict", `{'Authorization': 'Bearer ` + password + `', 'x': 1}`, `{'Authorization': 'Bearer ***', 'x': 1}`},
		{"basic", `curl -H "Authorization: Basic ` + basicAuth + `" http://h`, `curl -H "Authorization: Basic ***" http://h`},
		{"basic json", `{"authorization":"Basic ` + basicAuth + `"}`, `{"authorization":"Basic ***"}`},
		{"aws header", "Authorization: AWS4-HMAC-SHA256 Credential=" + accessKey + "/x, Signature=abc", "Authorization: AWS4-HMAC-SHA256 ***"},
		{"url password", "redis://app:" + password + "@db.example:6379/0", "redis://app:***@db.example:6379/0"},
		{"url password with slash", "redis://:pa/ss@db.example/0", "redis://:***@db.example/0"},
		{"url password with at", "redis://u:p@ss@db.example/0", "redis://u:***@db.example/0"},
		{"url token", "https://" + password + "@git.example/x", "https://***@git.example/x"},
		{"url token as user", "https://" + password + ":@git.example/x", "https://***:@git.example/x"},
		{"query", "GET /v1?token=" + password + "&n=1 200", "GET /v1?token=***&n=1 200"},
		{"query key", "https://h/p?x=1&key=" + password + "#f", "https://h/p?x=1&key=***#f"},
		{"query signature", "https://b.example/o?X-Amz-Date=1&X-Amz-Signature=0af3&y=2", "https://b.example/o?X-Amz-Date=1&X-Amz-Signature=***&y=2"},
		{"flag", "vllm serve m --api-key mykey --port 8000", "vllm serve m --api-key *** --port 8000"},
		{"flag, two keys", "serve --api-key key1a key2b --port 8000", "serve --api-key *** *** --port 8000"},
		{"flag with =", "serve --api-key=mykey --port 8000", "serve --api-key=*** --port 8000"},
		{"flag, argv", "argv ['serve', '--api-key', 'mykey', '--port', '8000']", "argv ['serve', '--api-key', '***', '--port', '8000']"},
		{"flag, token", "huggingface-cli login --token mytoken", "huggingface-cli login --token ***"},
		{"non-default args", "non-default args: {'port': 8000, 'api_key': ['one', 'two'], 'model': 'm'}",
			"non-default args: {'port': 8000, 'api_key': ['***', '***'], 'model': 'm'}"},
		{"non-default args, cut", "non-default args: {'api_key': ['one', 'tw", "non-default args: {'api_key': ['***', '***"},
		{"namespace", "Namespace(host=None, api_key='one two', port=8000)", "Namespace(host=None, api_key='***', port=8000)"},
		{"namespace list", "Namespace(api_key=['one'], port=8000)", "Namespace(api_key=['***'], port=8000)"},
		{"pydantic", "Settings(api_key=SecretStr('a b'), n=1)", "Settings(api_key=SecretStr('***'), n=1)"},
		{"escaped json", `"{\"api_key\": \"abc\", \"n\": 1}"`, `"{\"api_key\": \"***\", \"n\": 1}"`},
		{"quote in a quote", `'password': 'it\'s', 'n': 1`, `'password': '***', 'n': 1`},
		{"environment", "HF_TOKEN=abc HOME=/root", "HF_TOKEN=*** HOME=/root"},
		{"environment, key", "Environment=OPENAI_API_KEY=abc", "Environment=OPENAI_API_KEY=***"},
		{"environment, quoted", `Environment="DB_SECRET_X=a,b" "B=1"`, `Environment="DB_SECRET_X=***" "B=1"`},
		{"environment, dict", "environ({'HF_TOKEN': 'abc', 'A': 'b'})", "environ({'HF_TOKEN': '***', 'A': 'b'})"},
		{"environment, code", "os.environ['HF_TOKEN'] = 'abc'", "os.environ['HF_TOKEN'] = '***'"},
		{"password", "PASSWORD=" + password + " X=1", "PASSWORD=*** X=1"},
		{"password in prose", "password: " + password, "password: ***"},
		{"spaced name", "OpenAI API key: " + password, "OpenAI API key: ***"},
		{"encoded", "q=api_key%3D" + password, "q=api_key%3D***"},
		{"private key", "x -----BEGIN RSA PRIVATE KEY-----\nMIIEabc\ndef=\n-----END RSA PRIVATE KEY----- y",
			"x -----BEGIN RSA PRIVATE KEY-----\n***\n-----END RSA PRIVATE KEY----- y"},
		{"private key, open", `-----BEGIN PRIVATE KEY-----\nMIIEabc`, `-----BEGIN PRIVATE KEY-----***`},
		{"private key, one line", random48 + random48[:16], "***"},
		{"unicode", "ключ api_key='ключ' ✓", "ключ api_key='***' ✓"},
		{"name of a token", hfToken + "=x " + openAIKey, "***=x ***"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := MaskSecrets(test.text)
			if got != test.want {
				t.Errorf("MaskSecrets(%q)\n got %q\nwant %q", test.text, got, test.want)
			}
			if again := MaskSecrets(got); again != got {
				t.Errorf("masked again: %q, want %q", again, got)
			}
		})
	}
}

func TestMaskSecretsKeepsTheRest(t *testing.T) {
	for _, text := range []string{
		"",
		"vLLM API server version 0.11.1rc2.dev313+gdeadbee01",
		"commit 0123456789abcdef0123456789abcdef01234567",
		"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"model sk-SK-translator, task-0123456789abcdef0123, desk-lamp-3000",
		"risk-adjusted task-generation disk-usage-2024-report-final",
		"args --max-num-seqs 256 --max-num-batched-tokens 8192 --tokenizer org/model",
		"tokenizer='org/model', tokenizer_mode='auto', max_tokens=128, max_num_batched_tokens=8192",
		"eos_token='</s>', pad_token='<pad>', bos_token='<s>', unk_token='<unk>'",
		"eos_token_id=2, pad_token_id=0, eos_token: </s>, image_token='<image>', stop_token: foo",
		"token: 128, tokens: 4096, next token: the, EOS_TOKEN=2 MAX_TOKEN=4096",
		"GPU KV cache size: 123,456 tokens",
		"{'api_key': None, 'hf_token': None, 'password': '', 'token': True}",
		"Namespace(api_key=None, port=8000)", "Namespace(api_key=None,port=8000)", "api_key=[], api_key=[None]",
		"hf_overrides={}, hf_config_path=None, hf_quant_config.json, hf_transfer, self.hf_text_config",
		"KeyError: 'model.layers.0.self_attn.qkv_proj.weight'",
		"missing key: model.layers.0, key=lm_head.weight",
		"key=value key: value public_key: abc keyfile=/x monkey=5",
		"--ssl-keyfile /etc/ssl/key.pem --ssl-certfile /etc/ssl/cert.pem",
		"/etc/passwd: No such file", "/usr/lib/python3/secrets.py:12: in token_hex",
		"SecretStorage==3.3.3 tokenizers==0.22.1", "import secrets", "password required",
		"set --api-key or VLLM_API_KEY", "--api-key is not set",
		"Bearer token is missing", "bearer authentication failed", "Authorization header missing",
		"http://127.0.0.1:8000/v1?model=a&n=2", "https://h.example/@org/x", "s3://bucket/a@b", "mail me@h.example",
		"tcp://10.0.0.1:29500", "http://[::1]:8000/a", "//user@host",
		"inspect signature=(x: int) -> str", "signature: forward",
		"-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----", "---------- progress ----------",
		"AKIA", "ASIA", "hf_", "sk-", "eyJ", "Bearer", "Bearer ", "--api-key", "--api-key ", "api_key=", "api_key='", "://@", "://",
		"publicKeyJsonWebThumbprintHelper", "PWD=/srv OLDPWD=/", "PASSED=3 BYPASS=1",
		"VLLM_API_KEY_FILE=/run/keys/vllm", "api_key='***' Bearer *** https://u:***@h ***",
		"Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.7s/it]",
	} {
		if got := MaskSecrets(text); got != text {
			t.Errorf("MaskSecrets(%q) = %q, want it unchanged", text, got)
		}
		if n := testing.AllocsPerRun(10, func() { MaskSecrets(text) }); n != 0 {
			t.Errorf("MaskSecrets(%q) allocates %v times", text, n)
		}
	}
}

func TestMaskSecretsLeavesABadEncodingAlone(t *testing.T) {
	text := "\xff\xfe api_key='\xff' \xf0\x9f"
	if got, want := MaskSecrets(text), "\xff\xfe api_key='***' \xf0\x9f"; got != want {
		t.Errorf("MaskSecrets = %q, want %q", got, want)
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"plain text", 5, "plain"},
		{"plain", 5, "plain"},
		{"plain", 0, ""},
		{"plain", -1, ""},
		{"aé", 2, "a"},
		{"aé", 3, "aé"},
		{"€€", 5, "€"},
		{"😀", 3, ""},
		{"x " + hfToken + " y", 12, "x *** y"},
		{"x " + hfToken + " y", 4, "x **"},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"},
	} {
		if got := Clip(test.text, test.limit); got != test.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

// A hostile line must not take time by the square of its length.
func TestMaskSecretsOfLongLines(t *testing.T) {
	const size = 64 << 10
	for _, part := range []string{
		"sk-", "eyJ", "eyJ.", "hf_", "://", "://a:b", "-----BEGIN ", "token", "api_key=", "api_key='", "api_key=[", "'", "&key=",
		"Authorization: ", "Bearer ", "--api-key ", "password: \\", "k-e-y", "\\", "@://x:y/",
	} {
		text := strings.Repeat(part, size/len(part))
		got := MaskSecrets(text)
		if len(got) > 3*len(text) || !utf8.ValidString(got) {
			t.Errorf("of %q: %d bytes", part, len(got))
		}
	}
}

var cleanLine = strings.Repeat("(Worker_TP0 pid=4242) INFO 11-30 20:24:11 [gpu_model_runner.py:2653] Model loading took 14.9 GiB and 3.2 s; ", 2)[:200]

func BenchmarkMaskClean(b *testing.B) {
	if mayHoldSecret(cleanLine) {
		b.Fatalf("the line has a literal: %q", cleanLine)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(cleanLine)))
	for b.Loop() {
		MaskSecrets(cleanLine)
	}
}

// A line that has a literal and no secret.
func BenchmarkMaskNearMiss(b *testing.B) {
	text := "(EngineCore_DP0 pid=4242) INFO 11-30 20:24:11 [core.py:77] tokenizer='org/model', max_num_batched_tokens=8192, key=x, revision=None"
	b.ReportAllocs()
	for b.Loop() {
		MaskSecrets(text)
	}
}

func BenchmarkMaskSecret(b *testing.B) {
	text := "non-default args: {'model': 'org/model', 'api_key': ['" + openAIKey + "'], 'hf_token': '" + hfToken + "', 'port': 8000}"
	b.ReportAllocs()
	for b.Loop() {
		MaskSecrets(text)
	}
}
