#include "cli/http_client.h"

#include <curl/curl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/secret.h"

#define BODY_MAX (256u << 20)
#define PROBLEM_MAX (64u << 10)
#define REASON_BYTES ((size_t)400) /* of what the service says */
#define CONNECT_TIMEOUT_S 10L
#define TIMEOUT_S 120L
#define SILENCE_MAX_S 60L /* four heartbeats of the event stream */
#define POLL_MS 1000
#define ATTEMPTS_MAX 5
#define BACKOFF_FIRST_MS 200 /* 200, 400, 800, 1600: longer than a restart takes */
#define RETRY_AFTER_MAX_MS 60000
#define KEY_MAX 256

struct http_client {
    CURL *curl;
    struct answer { /* to the last request */
        CURLcode rc;
        long status; /* 0: none came */
        int64_t retry_after_ms;
    } last;
    struct curl_slist *headers;
    char *base_url;
    const char *trusted; /* file; NULL: what the system trusts */
    char authorization[KEY_MAX];
};

err http_client_open(const char *base_url, const char *api_key, struct http_client **out)
{
    if (api_key && strlen(api_key) > KEY_MAX - 32)
        return fail(E_INVALID, "the API key is too long to be one");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return fail(E_INTERNAL, "libcurl does not start");
    struct http_client *c = mem_alloc(sizeof *c);
    c->curl = curl_easy_init();
    if (c->curl == NULL)
        abort();
    size_t n = strlen(base_url);
    c->base_url = mem_copy(base_url, n && base_url[n - 1] == '/' ? n - 1 : n);
    c->headers = curl_slist_append(NULL, "Accept: application/json, */*");
    c->headers = curl_slist_append(c->headers, "Expect:"); /* no pause before a large body */
    if (api_key) {
        snprintf(c->authorization, sizeof c->authorization, "Authorization: Bearer %s", api_key);
        c->headers = curl_slist_append(c->headers, c->authorization);
    }
    *out = c;
    return 0;
}

void http_client_trust(struct http_client *c, const char *file)
{
    c->trusted = file;
}

/* Wipes: one of them may hold the key. */
static void free_headers(struct curl_slist *headers)
{
    for (struct curl_slist *h = headers; h; h = h->next)
        secret_wipe(h->data, strlen(h->data));
    curl_slist_free_all(headers);
}

void http_client_close(struct http_client *c)
{
    if (c == NULL)
        return;
    curl_easy_cleanup(c->curl);
    free_headers(c->headers);
    secret_wipe(c->authorization, sizeof c->authorization);
    mem_free(c->base_url);
    mem_free(c);
}

/* `more`: another one, or NULL. */
static struct curl_slist *copy_headers(const struct http_client *c, const char *more)
{
    struct curl_slist *copy = NULL;
    for (const struct curl_slist *h = c->headers; h; h = h->next)
        copy = curl_slist_append(copy, h->data);
    return more ? curl_slist_append(copy, more) : copy;
}

static size_t take_body(char *p, size_t size, size_t n, void *arg)
{
    struct buf *body = arg;
    if (body->n + size * n > BODY_MAX)
        return 0; /* curl then fails with a write error */
    buf_add(body, p, size * n);
    return size * n;
}

/* What a person can act on: the fields that are wrong (the detail names the first), or whom to ask
   about what. */
static void add_particulars(const json_t *problem, long status, struct buf *text)
{
    const json_t *errors = json_object_get(problem, "errors");
    size_t i;
    json_t *one;
    if (json_array_size(errors) > 1)
        buf_clear(text);
    else
        errors = NULL;
    json_array_foreach(errors, i, one)
    {
        const char *path = json_get_c(one, "path"), *message = json_get_c(one, "message");
        buf_printf(text, "%s%s%s%s", i ? "; " : "", path ? path : "", path && path[0] ? " " : "",
                   message ? message : "");
    }
    const char *request = json_get_c(problem, "requestId");
    if (status >= 500 && request)
        buf_printf(text, " (the service's log says more under %s)", request);
}

err http_client_refusal(long status, const struct buf *body)
{
    static const struct {
        long status;
        err e;
    } codes[] = {{401, E_UNAUTHORIZED}, {403, E_FORBIDDEN}, {404, E_NOT_FOUND},
                 {409, E_CONFLICT},     {429, E_QUOTA},     {413, E_TOO_LARGE}};
    AUTO_JSON problem = NULL;
    const char *detail = NULL, *code = NULL;
    if (json_read(buf_str(body), &problem) == 0) {
        detail = json_get_c(problem, "detail");
        code = json_get_c(problem, "code");
    }
    err e = status >= 500 ? E_UNAVAILABLE : E_INVALID;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].status == status)
            e = codes[i].e;
    }
    AUTO_BUF text = {0};
    buf_add_c(&text, detail ? detail : "(no reason given: is this a pi-managed service?)");
    add_particulars(problem, status, &text);
    bool cut = text.n > REASON_BYTES;
    size_t n = cut ? str_utf8_floor(buf_str(&text), REASON_BYTES) : text.n;
    return fail_as(e, code ? code : "", "the service answered %ld%s%s: %.*s%s", status,
                   code ? " " : "", code ? code : "", (int)n, text.p, cut ? "…" : "");
}

err http_client_unreachable(const struct http_client *c, int curl_code)
{
    if (curl_code == CURLE_PEER_FAILED_VERIFICATION || curl_code == CURLE_SSL_CACERT_BADFILE)
        return fail(E_UNAVAILABLE,
                    "%s is not trusted: %s. --ca-cert FILE names the certificate to trust",
                    c->base_url, curl_easy_strerror((CURLcode)curl_code));
    if (curl_code == CURLE_SSL_CONNECT_ERROR)
        return fail(
            E_UNAVAILABLE,
            "cannot reach %s: %s. Does the service speak TLS? Without --tls-cert its address "
            "begins with http://",
            c->base_url, curl_easy_strerror((CURLcode)curl_code));
    return fail(E_UNAVAILABLE,
                "cannot reach %s: %s. Is the service running (pi-managed serve)? PI_MANAGED_URL or "
                "--url says where it is",
                c->base_url, curl_easy_strerror((CURLcode)curl_code));
}

/* http://HOST… */
static bool is_on_this_machine(const char *url)
{
    static const char *const names[] = {"127.", "localhost", "[::1]"};
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(host, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

static void prepare_handle(const struct http_client *c, CURL *curl, const char *url)
{
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (c->trusted)
        curl_easy_setopt(curl, CURLOPT_CAINFO, c->trusted);
    if (is_on_this_machine(c->base_url))
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
}

static void prepare(struct http_client *c, const char *url)
{
    curl_easy_reset(c->curl);
    prepare_handle(c, c->curl, url);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
}

void *http_client_connection(struct http_client *c, const char *url)
{
    CURL *curl = curl_easy_init();
    if (curl == NULL)
        abort();
    prepare_handle(c, curl, url);
    curl_easy_setopt(curl, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_HTTPPROXYTUNNEL, 1L);
    return curl;
}

const char *http_client_base(const struct http_client *c)
{
    return c->base_url;
}

const char *http_client_authorization(const struct http_client *c)
{
    return c->authorization;
}

static void note_answer(struct http_client *c, CURLcode rc)
{
    curl_off_t retry_after_s = 0;
    c->last = (struct answer){.rc = rc};
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &c->last.status);
    curl_easy_getinfo(c->curl, CURLINFO_RETRY_AFTER, &retry_after_s);
    c->last.retry_after_ms = retry_after_s < INT32_MAX ? retry_after_s * 1000 : INT32_MAX;
}

/* The prepared request; the answer's body goes to `out`. */
static err perform(struct http_client *c, struct buf *out)
{
    AUTO_BUF answer = {0};
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &answer);
    CURLcode rc = curl_easy_perform(c->curl);
    note_answer(c, rc);
    if (rc != CURLE_OK)
        return http_client_unreachable(c, rc);
    if (c->last.status < 200 || c->last.status > 299)
        return http_client_refusal(c->last.status, &answer);
    buf_add_str(out, buf_str(&answer));
    return 0;
}

/* ---- again ---- */

/* What is sent, so that it can be sent again. */
struct request {
    const char *method, *path;
    err (*once)(struct http_client *c, const struct request *q, struct buf *out);
    struct str body;         /* JSON; p NULL: none */
    const char *file, *type; /* a file as it is, or as `part` of a form */
    const char *part, *name;
    char key[64]; /* the header line of a POST's Idempotency-Key, or "" */
};

/* A pipe gives what is in it once: another attempt would send nothing, or the rest. */
static bool is_read_once(const struct request *q)
{
    struct stat st;
    return q->file && (strcmp(q->file, "-") == 0 || stat(q->file, &st) < 0 || !S_ISREG(st.st_mode));
}

/* Is it harmless when the service gets it twice? */
static bool is_repeatable(const struct request *q)
{
    return q->key[0] || strcmp(q->method, "GET") == 0;
}

static bool was_cut_off(CURLcode rc)
{
    return rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR ||
           rc == CURLE_PARTIAL_FILE;
}

/* How long to wait before the next attempt; -1: there is none. */
static int64_t pause_ms(const struct answer *last, bool repeatable, unsigned attempt)
{
    if (attempt >= ATTEMPTS_MAX - 1)
        return -1;
    if (last->rc == CURLE_COULDNT_CONNECT || (was_cut_off(last->rc) && repeatable))
        return (int64_t)BACKOFF_FIRST_MS << attempt;
    bool busy = last->status == 503 ||
                (last->status == 429 && strcmp(err_code(), "rate_limited") == 0) ||
                (last->status == 409 && strcmp(err_code(), "idempotency_in_flight") == 0);
    if (last->rc != CURLE_OK || !busy)
        return -1;
    int64_t wait_ms = last->retry_after_ms ? last->retry_after_ms : 1000;
    return wait_ms <= RETRY_AFTER_MAX_MS ? wait_ms : -1;
}

/* Says that and why it waits, and waits. */
static void wait_visibly(const struct http_client *c, int64_t wait_ms, unsigned attempt)
{
    if (c->last.rc == CURLE_OK)
        fprintf(stderr, "· the service is busy (%s): trying again in %.3g s\n", err_code(),
                (double)wait_ms / 1000);
    else if (attempt == 0)
        fprintf(stderr, "· %s: %s; trying again\n", c->base_url, curl_easy_strerror(c->last.rc));
    poll(NULL, 0, (int)wait_ms);
}

static err send_request(struct http_client *c, struct request *q, struct buf *out)
{
    unsigned char random[16];
    char hex[sizeof random * 2 + 1];
    if (strcmp(q->method, "POST") == 0) {
        rand_bytes(random, sizeof random);
        sodium_bin2hex(hex, sizeof hex, random, sizeof random);
        snprintf(q->key, sizeof q->key, "Idempotency-Key: cli-%s", hex);
    }
    for (unsigned attempt = 0;; attempt++) {
        err e = q->once(c, q, out);
        bool sendable = c->last.rc == CURLE_COULDNT_CONNECT || !is_read_once(q);
        int64_t wait_ms = e && sendable ? pause_ms(&c->last, is_repeatable(q), attempt) : -1;
        if (wait_ms < 0)
            return e;
        wait_visibly(c, wait_ms, attempt);
    }
}

/* The headers of every request and those of this one. */
static struct curl_slist *headers_of(const struct http_client *c, const struct request *q)
{
    char type[128];
    struct curl_slist *headers = copy_headers(c, q->key[0] ? q->key : NULL);
    if (q->type) {
        snprintf(type, sizeof type, "Content-Type: %s", q->type);
        headers = curl_slist_append(headers, type);
    }
    return headers;
}

static void prepare_request(struct http_client *c, const struct request *q,
                            struct curl_slist *headers)
{
    AUTO_BUF url = {0};
    buf_printf(&url, "%s%s", c->base_url, q->path);
    prepare(c, url.p);
    curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
}

/* ---- kinds of requests ---- */

static err send_json_once(struct http_client *c, const struct request *q, struct buf *out)
{
    struct curl_slist *headers = headers_of(c, q);
    prepare_request(c, q, headers);
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    if (q->body.p) {
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body.n);
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, q->body.p);
    }
    err e = perform(c, out);
    free_headers(headers);
    return e;
}

err http_client_send(struct http_client *c, const char *method, const char *path, struct str body,
                     struct buf *out)
{
    struct request q = {.method = method,
                        .path = path,
                        .once = send_json_once,
                        .body = body,
                        .type = body.p ? "application/json" : NULL};
    return send_request(c, &q, out);
}

static void close_file(FILE **f)
{
    if (*f && *f != stdin)
        fclose(*f);
}

static err upload_once(struct http_client *c, const struct request *q, struct buf *out)
{
    __attribute__((cleanup(close_file))) FILE *f =
        strcmp(q->file, "-") == 0 ? stdin : fopen(q->file, "re");
    c->last = (struct answer){.rc = CURLE_READ_ERROR};
    if (f == NULL)
        return fail_errno("open %s", q->file);
    struct curl_slist *headers = headers_of(c, q);
    prepare_request(c, q, headers);
    curl_easy_setopt(c->curl, CURLOPT_UPLOAD, 1L); /* chunked: nobody has to know how long it is */
    curl_easy_setopt(c->curl, CURLOPT_READDATA, f);
    err e = perform(c, out);
    free_headers(headers);
    return e;
}

err http_client_upload(struct http_client *c, const char *path, const char *type, const char *file,
                       struct buf *out)
{
    struct request q = {
        .method = "POST", .path = path, .once = upload_once, .type = type, .file = file};
    return send_request(c, &q, out);
}

static err upload_form_once(struct http_client *c, const struct request *q, struct buf *out)
{
    struct curl_slist *headers = headers_of(c, q);
    prepare_request(c, q, headers);
    curl_mime *form = curl_mime_init(c->curl);
    curl_mimepart *p = curl_mime_addpart(form);
    curl_mime_name(p, q->part);
    curl_mime_filedata(p, q->file);
    if (q->name)
        curl_mime_filename(p, q->name);
    curl_easy_setopt(c->curl, CURLOPT_MIMEPOST, form);
    err e = perform(c, out);
    curl_mime_free(form);
    free_headers(headers);
    return e;
}

err http_client_upload_form(struct http_client *c, const char *path, const char *part,
                            const char *file, const char *name, struct buf *out)
{
    if (access(file, R_OK) != 0)
        return fail_errno("read %.200s", file);
    struct request q = {.method = "POST",
                        .path = path,
                        .once = upload_form_once,
                        .part = part,
                        .file = file,
                        .name = name};
    return send_request(c, &q, out);
}

err http_client_get(struct http_client *c, const char *path, struct buf *out)
{
    return http_client_send(c, "GET", path, (struct str){0}, out);
}

/* ---- streams ---- */

struct reading {
    struct http_client *c;
    struct http_stream *s;
    struct buf problem; /* the body of an answer that is no stream */
    bool enough;        /* on_bytes or wake_fd said so */
};

static size_t take_stream(char *p, size_t size, size_t n, void *arg)
{
    struct reading *r = arg;
    long status = 0;
    curl_easy_getinfo(r->c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        if (r->problem.n + size * n <= PROBLEM_MAX)
            buf_add(&r->problem, p, size * n);
        return size * n;
    }
    r->s->connected = true;
    r->enough = !r->s->on_bytes(r->s->arg, (struct str){p, size * n});
    return r->enough ? 0 : size * n;
}

/* Until the transfer is over, or somebody wakes us. */
static CURLcode drive(struct reading *r, CURLM *multi)
{
    struct curl_waitfd wake = {.fd = r->s->wake_fd, .events = CURL_WAIT_POLLIN};
    for (int running = 1, left; !r->enough;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        const CURLMsg *m = curl_multi_info_read(multi, &left);
        if (m && m->msg == CURLMSG_DONE)
            return m->data.result;
        curl_multi_poll(multi, &wake, r->s->wake_fd >= 0, POLL_MS, NULL);
        r->enough = r->enough || wake.revents;
    }
    return CURLE_OK;
}

static err stream_result(struct reading *r, CURLcode rc)
{
    note_answer(r->c, rc);
    long status = r->c->last.status;
    r->s->retry_after_ms = r->c->last.retry_after_ms;
    if (r->enough)
        return 0;
    if (rc != CURLE_OK && (r->s->connected || status == 200))
        return fail(E_CLOSED, "the connection to %s was lost: %s", r->c->base_url,
                    curl_easy_strerror(rc));
    if (rc != CURLE_OK)
        return http_client_unreachable(r->c, rc);
    return status == 200 ? 0 : http_client_refusal(status, &r->problem);
}

static err stream_once(struct http_client *c, struct http_stream *s)
{
    char from[64];
    struct reading r = {.c = c, .s = s};
    struct request q = {.method = "GET", .path = s->path};
    s->connected = false;
    if (s->download)
        snprintf(from, sizeof from, "Accept-Encoding: identity");
    else
        snprintf(from, sizeof from, "Last-Event-ID: %s", s->last_event_id ? s->last_event_id : "0");
    struct curl_slist *headers = copy_headers(c, from);
    CURLM *multi = curl_multi_init();
    if (multi == NULL)
        abort();
    prepare_request(c, &q, headers);
    curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, SILENCE_MAX_S);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_stream);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &r);
    curl_multi_add_handle(multi, c->curl);
    err e = stream_result(&r, drive(&r, multi));
    curl_multi_remove_handle(multi, c->curl);
    curl_multi_cleanup(multi);
    free_headers(headers);
    buf_done(&r.problem);
    return e;
}

/* Event streams are taken up again by who reads them (watch.h); of a download nothing must have
   come yet. */
err http_client_stream(struct http_client *c, struct http_stream *s)
{
    for (unsigned attempt = 0;; attempt++) {
        err e = stream_once(c, s);
        int64_t wait_ms =
            e && s->download && !s->connected ? pause_ms(&c->last, true, attempt) : -1;
        if (wait_ms < 0)
            return e;
        wait_visibly(c, wait_ms, attempt);
    }
}
