/* pi-managed serve: the service, in the foreground. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "cli/command.h"
#include "cli/logging.h"
#include "cli/sandbox_options.h"
#include "cli/service.h"
#include "parent/listen.h"
#include "sandbox/mounts.h"

#define PACKAGE_HOSTS                                                                              \
    "deb.debian.org,security.debian.org,archive.ubuntu.com,security.ubuntu.com,ports.ubuntu.com,"  \
    "registry.npmjs.org,pypi.org,files.pythonhosted.org"

static const struct option options[] = {
    SERVICE_OPTIONS,
    {"listen", "ADDR:PORT", "127.0.0.1:7433", "port 0 takes a free one and prints it"},
    {"tls-cert", "FILE", NULL, "PEM; needed (with --tls-key) to listen off loopback"},
    {"tls-key", "FILE", NULL, "PEM"},
    {"insecure", NULL, NULL, "listen off loopback without TLS (behind a TLS proxy)"},
    {"sandbox", "PROVIDER", "auto", "where tools run: auto, or a provider that doctor lists"},
    OPTION_SANDBOX_MEMORY,
    OPTION_ALLOW_UNENFORCED,
    {"allow-private", "HOST[:PORT],…", NULL,
     "private hosts that may be dialled, e.g. a local model"},
    {"allow-image", "PATH,…", NULL,
     "environments may name images beneath: dir:PATH, tar:PATH, oci:PATH"},
    {"allow-mount", "DIR[:ro],…", NULL,
     "environments may mount these folders and what lies within; ro: never writable"},
    {"retention-days", "DAYS", "30", "how long the logs of deleted sessions are kept"},
    {"package-hosts", "HOST[:PORT],…", PACKAGE_HOSTS, "where packages of environments come from"},
    {0},
};

static err choose_retention(const struct invocation *call, struct parent_config *config)
{
    const char *text = option_value(call, "retention-days");
    uint64_t days;
    if (!str_to_u64(str_of(text), &days) || days > 36500)
        return fail(E_INVALID, "--retention-days %.40s: give a number of days, 0 to 36500", text);
    config->retention_days = (uint32_t)days;
    return 0;
}

static err choose_provider(const struct invocation *call, struct parent_config *config)
{
    const struct sandbox_provider *provider = NULL;
    TRY(sandbox_memory_option(call, &config->sandbox_memory_mib));
    config->allow_unenforced = option_flag(call, "allow-unenforced-limits");
    TRY(sandbox_provider_choose(option_value(call, "sandbox"), &provider));
    snprintf(config->provider, sizeof config->provider, "%s", provider->name);
    provider->probe(&config->caps);
    return 0;
}

static err open_tls(const struct invocation *call, struct parent_options *o)
{
    const char *cert = option_value(call, "tls-cert"), *key = option_value(call, "tls-key");
    if (!cert && !key)
        return 0;
    if (!cert || !key)
        return fail(E_INVALID, "--tls-cert and --tls-key belong together");
    o->tls_cert_fd = open(cert, O_RDONLY | O_CLOEXEC);
    if (o->tls_cert_fd < 0)
        return fail_errno("open %s", cert);
    o->tls_key_fd = open(key, O_RDONLY | O_CLOEXEC);
    return o->tls_key_fd < 0 ? fail_errno("open %s", key) : 0;
}

/* A list goes to the roles as it was given. */
static err copy_option(const struct invocation *call, const char *name, char *out, size_t cap)
{
    const char *value = option_value(call, name);
    if (value && strlen(value) >= cap)
        return fail(E_INVALID, "--%s is longer than %zu bytes", name, cap - 1);
    snprintf(out, cap, "%s", value ? value : "");
    return 0;
}

/* What links lead to is what counts, so that is what must be given. */
static err check_real_path(const char *option, struct str path)
{
    char given[PATH_MAX], real[PATH_MAX];
    if (path.n == 0 || path.n >= sizeof given || path.p[0] != '/')
        return fail(E_INVALID, "--%s needs absolute paths, separated by commas", option);
    memcpy(given, path.p, path.n);
    given[path.n] = 0;
    if (realpath(given, real) == NULL)
        return fail_errno("--%s %s", option, given);
    if (strcmp(given, real) != 0)
        return fail(E_INVALID, "--%s %s is really %s: give that path", option, given, real);
    return strcmp(real, "/") == 0 ? fail(E_INVALID, "--%s / would allow everything", option) : 0;
}

/* What others must not read, or, of the program, not write. */
static err check_apart_from_service(const struct mount_allowed *one, const struct service_setup *s)
{
    char program[PATH_MAX] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return fail_errno("read /proc/self/exe");
    const struct {
        const char *what, *path;
        bool secret;
    } own[] = {{"data directory", s->data.path, true},
               {"folder of objects", s->objects_dir, true},
               {"program", program, false},
               {"runtime", s->places.runtime, false},
               {"harness", s->places.harness, false}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct str path = str_of(own[i].path);
        if (path.n == 0 || (one->read_only && !own[i].secret))
            continue;
        if (path_is_within(path, one->dir) || path_is_within(one->dir, path))
            return fail(E_INVALID, "--allow-mount %.*s: the service's %s %s must lie elsewhere%s",
                        STR_ARG(one->dir), own[i].what, own[i].path,
                        own[i].secret ? "" : ", or the folder be allowed with :ro");
    }
    return 0;
}

/* Nothing of the service itself, and nothing of the kernel's, may be mounted into a sandbox. */
static err check_mount_folder(const struct mount_allowed *one, const struct service_setup *s)
{
    static const char *const kernels[] = {"/proc", "/sys", "/dev"};
    struct str dir = one->dir;
    TRY(check_real_path("allow-mount", dir));
    TRY(check_apart_from_service(one, s));
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (path_is_within(dir, str_of(kernels[i])))
            return fail(E_INVALID, "--allow-mount %.*s: nothing of %s can be mounted", STR_ARG(dir),
                        kernels[i]);
    }
    return 0;
}

static err check_mount_list(const char *list, const struct service_setup *s)
{
    struct str rest = str_of(list);
    struct mount_allowed one;
    while (mount_allowed_next(&rest, &one)) {
        if (one.dir.n == 0)
            return fail(E_INVALID, "--allow-mount needs absolute paths of folders, like /srv/a or "
                                   "/srv/a:ro, separated by commas");
        TRY(check_mount_folder(&one, s));
    }
    return 0;
}

static err take_lists(const struct invocation *call, struct service_setup *s)
{
    struct parent_config *c = &s->options.config;
    TRY(copy_option(call, "allow-private", c->allow_private, sizeof c->allow_private));
    TRY(copy_option(call, "package-hosts", c->package_hosts, sizeof c->package_hosts));
    TRY(copy_option(call, "allow-image", c->allow_images, sizeof c->allow_images));
    struct str rest = str_of(c->allow_images), path;
    while (rest.n > 0) {
        str_split(&rest, ',', &path);
        TRY(check_real_path("allow-image", path));
    }
    TRY(copy_option(call, "allow-mount", c->allow_mount, sizeof c->allow_mount));
    return check_mount_list(c->allow_mount, s);
}

static err open_listener(const struct invocation *call, struct parent_options *o)
{
    TRY(open_tls(call, o));
    return listen_open(option_value(call, "listen"), o->tls_cert_fd >= 0,
                       option_flag(call, "insecure"), &o->listen_fd, o->config.listen_url,
                       sizeof o->config.listen_url);
}

/* The first key goes to the person at the terminal or into a file, never into the log. */
static err show_first_key(const struct service_setup *s)
{
    if (isatty(STDOUT_FILENO)) {
        printf(
            "The data directory is new. Its first API key is shown once; for commands in another "
            "terminal:\n\n    export PI_MANAGED_API_KEY=%s\n\n",
            s->token);
        return fflush(stdout) == 0 ? 0 : fail_errno("write to the terminal");
    }
    char path[PATH_MAX + 16], text[TOKEN_MAX + 1];
    snprintf(path, sizeof path, "%s/first-key", s->data.path);
    snprintf(text, sizeof text, "%s\n", s->token);
    TRY(fd_write_file_atomic(path, str_of(text), 0600));
    log_info("the data directory is new; the first API key is in %s", path);
    return 0;
}

static void announce(void *arg)
{
    const struct parent_options *o = arg;
    printf("pi-managed listening on %s\n", o->config.listen_url);
    if (fflush(stdout) != 0)
        log_warn("standard output is closed; listening on %s", o->config.listen_url);
}

static void warn_about_zones(const struct parent_options *o)
{
    if (!o->separate)
        log_warn("zones are not separated by user id: %s. Everything runs as uid %u",
                 geteuid() == 0 ? "this root may not change user ids or make namespaces"
                                : "the service was not started as root",
                 (unsigned)geteuid());
}

static err start(const struct invocation *call, struct service_setup *s)
{
    struct parent_options *o = &s->options;
    /* Before there is a data directory: a slip of the pen must not make one. */
    TRY(listen_check(option_value(call, "listen"), option_value(call, "tls-cert") != NULL,
                     option_flag(call, "insecure")));
    TRY(service_open(call, s));
    if (s->token[0])
        TRY(show_first_key(s));
    TRY(choose_provider(call, &o->config));
    TRY(choose_retention(call, &o->config));
    TRY(take_lists(call, s));
    TRY(open_listener(call, o));
    o->config.single_tenant = s->tenant[0] != 0;
    memcpy(o->config.tenant, s->tenant, sizeof o->config.tenant);
    o->ready = announce;
    o->arg = o;
    warn_about_zones(o);
    return 0;
}

static int run(const struct invocation *call)
{
    static struct service_setup s; /* large */
    log_init("parent", logging_format(option_value(call, "log-format")),
             logging_level(option_value(call, "log-level")));
    err e = start(call, &s);
    if (!e)
        e = parent_run(&s.options);
    int status = e ? command_fail(call) : 0;
    fd_close(&s.options.listen_fd);
    fd_close(&s.options.tls_cert_fd);
    fd_close(&s.options.tls_key_fd);
    service_close(&s);
    return status;
}

const struct command serve_command = {
    .name = "serve",
    .arguments = "",
    .summary = "Runs the service in the foreground.",
    .options = options,
    .run = run,
};
