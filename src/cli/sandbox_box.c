#include "cli/sandbox_box.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"
#include "parent/makers.h"
#include "parent/ranges.h"
#include "parent/roles.h"
#include "sandbox/state.h"

#define PROBE_UID 64000

/* ---- the data directory ---- */

/* Whoever owns the database is control; without a database there was no service yet. */
static err find_control(const char *data, uid_t *out)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/control.db", data) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    if (stat(path, &st) < 0 && errno != ENOENT)
        return fail_errno("open %s", path);
    *out = access(path, F_OK) == 0 ? st.st_uid : geteuid();
    return 0;
}

static err check_data(const char *data)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/sandboxes", data) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    if (access(path, F_OK) == 0)
        return 0;
    return errno == ENOENT
               ? fail(E_NOT_FOUND, "%s is no data directory; name one with --data", data)
               : fail_errno("open %s", path);
}

err box_open_data(const struct invocation *call, bool make, struct box *out)
{
    const char *data = option_value(call, "data");
    *out = (struct box){.data = {.lock = -1},
                        .provider = sandbox_providers[0],
                        .runtime = option_value(call, "runtime")};
    TRY(sandbox_memory_option(call, &out->place.memory_mib));
    out->place.allow_unenforced = option_flag(call, "allow-unenforced-limits");
    if (!make)
        TRY(check_data(data));
    TRY(find_control(data, &out->place.socket_owner));
    err e = data_open_shared(data, out->place.socket_owner, &out->data);
    if (e == E_CONFLICT)
        return fail(e,
                    "a service is running on %s. Stop it first, use its API, or choose another "
                    "directory with --data",
                    data);
    TRY(e);
    return data_short_path(&out->data, out->short_data, sizeof out->short_data);
}

void box_close(struct box *b)
{
    data_close(&b->data);
}

/* ---- names ---- */

err box_name_check(const char *name)
{
    size_t n = strlen(name);
    bool good = n >= 1 && n <= BOX_NAME_MAX && isalnum((unsigned char)name[0]);
    for (size_t i = 0; i < n && good; i++)
        good = isalnum((unsigned char)name[i]) || strchr("._-", name[i]);
    if (!good)
        return fail(E_INVALID,
                    "\"%.60s\" is no name for a sandbox: 1 to %d letters, digits and . _ - with a "
                    "letter or digit first",
                    name, BOX_NAME_MAX);
    if (strcmp(name, "all") == 0 || strncmp(name, "sess_", 5) == 0)
        return fail(E_INVALID, "\"%s\" means something else here: choose another name", name);
    return 0;
}

void box_name_new(char *out)
{
    unsigned char random[5];
    char hex[2 * sizeof random + 1];
    rand_bytes(random, sizeof random);
    sodium_bin2hex(hex, sizeof hex, random, sizeof random);
    snprintf(out, BOX_NAME_MAX + 1, "run-%s", hex);
}

const char *box_name_of(const char *tenant)
{
    return strncmp(tenant, SANDBOX_PERSONAL, strlen(SANDBOX_PERSONAL)) == 0
               ? tenant + strlen(SANDBOX_PERSONAL)
               : NULL;
}

/* Sandboxes are known by session ids. A name's is made from it and from the year 1970, so that no
   session ever has the same. */
static void id_of_name(const char *prefix, const char *name, char out[ID_MAX])
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)name, strlen(name), NULL, 0);
    id_make(prefix, 0, hash, out);
}

/* ---- one sandbox ---- */

err box_point(struct box *b, const char *id)
{
    b->spec = (struct sandbox_spec){0};
    snprintf(b->spec.id, sizeof b->spec.id, "%s", id);
    if (snprintf(b->dir, PATH_MAX, "%s/sandboxes/%s", b->data.path, id) >= PATH_MAX ||
        snprintf(b->socket, PATH_MAX, "%s/sandboxes/%s/agent.sock", b->short_data, id) >=
            PATH_MAX ||
        snprintf(b->images, PATH_MAX, "%s/images", b->data.path) >= PATH_MAX ||
        snprintf(b->sandboxes, PATH_MAX, "%s/sandboxes", b->data.path) >= PATH_MAX)
        return fail(E_INVALID, "the path of the data directory is too long");
    b->place.dir = b->dir;
    b->place.socket = b->socket;
    b->place.images = b->images;
    b->place.sandboxes = b->sandboxes;
    return 0;
}

static err point_at_name(struct box *b, const char *name)
{
    char id[ID_MAX];
    if (id_valid(str_of(name), "sess"))
        return box_point(b, name);
    TRY(box_name_check(name));
    id_of_name("sess", name, id);
    return box_point(b, id);
}

static err point_at_snapshot(struct box *b, const char *name)
{
    char id[ID_MAX];
    if (id_valid(str_of(name), SANDBOX_SNAPSHOT_ID))
        return box_point(b, name);
    TRY(box_name_check(name));
    id_of_name(SANDBOX_SNAPSHOT_ID, name, id);
    return box_point(b, id);
}

bool box_is_snapshot(const struct box *b)
{
    return id_valid(str_of(b->spec.id), SANDBOX_SNAPSHOT_ID);
}

static err read_box(struct box *b, const char *name, const char *what)
{
    err e = state_read_spec(b->dir, &b->spec);
    if (e == E_NOT_FOUND)
        return fail(e, "there is no %s %s in %s. See: pi-managed sandbox ls", what, name,
                    b->data.path);
    TRY(e);
    e = range_read(b->data.path, b->spec.id, &b->place.uid_base);
    return e == E_NOT_FOUND ? 0 : e; /* as a plain user there are none */
}

err box_find(struct box *b, const char *name)
{
    TRY(point_at_name(b, name));
    return read_box(b, name, "sandbox");
}

err box_find_any(struct box *b, const char *name)
{
    if (!id_valid(str_of(name), SANDBOX_SNAPSHOT_ID)) {
        err e = box_find(b, name);
        if (e != E_NOT_FOUND || id_valid(str_of(name), "sess"))
            return e;
    }
    TRY(point_at_snapshot(b, name));
    return read_box(b, name, "sandbox or snapshot");
}

/* ---- what a maker does ---- */

typedef err (*box_verb)(const struct box *b);

static err verb_make(const struct box *b)
{
    TRY(b->provider->create(&b->spec, &b->place));
    return b->provider->start(&b->spec, &b->place);
}

static err verb_start(const struct box *b)
{
    return b->provider->start(&b->spec, &b->place);
}

static err verb_fork(const struct box *b)
{
    bool live = false;
    return b->provider->fork(&b->spec, &b->place, b->from->spec.id, &b->from->place, &live);
}

static err verb_destroy(const struct box *b)
{
    return b->provider->destroy(&b->spec, &b->place);
}

struct maker_step {
    const struct box *b;
    box_verb verb;
};

/* What it starts must outlive us, not hear our terminal's signals and not hold our pipes open. */
static err be_maker(void *arg, void *result)
{
    const struct maker_step *step = arg;
    sigset_t none;
    (void)result;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    role_enter("maker");
    return step->verb(step->b);
}

static err in_maker(const struct box *b, box_verb verb)
{
    struct maker_step step = {.b = b, .verb = verb};
    return fork_call(be_maker, &step, NULL, 0, MAKER_TIMEOUT_MS);
}

/* What making and starting need beyond the folders. */
static err prepare(struct box *b)
{
    TRY(places_find(b->runtime, NULL, &b->places));
    b->place.runtime = b->places.runtime;
    return sandbox_provider_choose("auto", &b->provider);
}

static err make_folder(struct box *b, const char *name)
{
    if (mkdir(b->dir, 0711) < 0)
        return errno == EEXIST ? fail(E_CONFLICT,
                                      "there is a sandbox %s already. Use it with: pi-managed "
                                      "sandbox exec, or remove it with: pi-managed sandbox rm",
                                      name)
                               : fail_errno("create %s", b->dir);
    if (chmod(b->dir, 0711) < 0) /* whatever the umask is */
        return fail_errno("set the mode of %s", b->dir);
    return 0;
}

static void set_limits(struct sandbox_spec *spec, const struct sandbox_spec *limits)
{
    spec->memory_mib = limits->memory_mib;
    spec->pids = limits->pids;
    spec->disk_mib = limits->disk_mib;
    spec->cpu_milli = limits->cpu_milli;
}

static err in_folder(struct box *b, box_verb verb)
{
    if (roles_can_separate(PROBE_UID))
        TRY(range_choose(b->data.path, b->spec.id, &b->place.uid_base));
    return in_maker(b, verb);
}

/* In a new folder, which goes again if it fails. */
static err make_new(struct box *b, const char *name, box_verb verb)
{
    TRY(make_folder(b, name));
    err e = in_folder(b, verb);
    if (e == 0)
        return 0;
    struct err_slot why;
    err_save(&why);
    box_destroy(b);
    return err_restore(&why);
}

static err check_free(const struct box *b, const char *name)
{
    struct box other = {.data = b->data};
    TRY(point_at_name(&other, name));
    bool taken = access(other.dir, F_OK) == 0;
    TRY(point_at_snapshot(&other, name));
    return taken || access(other.dir, F_OK) == 0
               ? fail(E_CONFLICT, "there is a sandbox or a snapshot %s already", name)
               : 0;
}

err box_fork(const struct box *b, const char *name, bool snapshot, struct box *out)
{
    TRY(box_name_check(name));
    TRY(check_free(b, name));
    *out = *b;
    TRY(snapshot ? point_at_snapshot(out, name) : point_at_name(out, name));
    set_limits(&out->spec, &b->spec);
    snprintf(out->spec.image, sizeof out->spec.image, "%s", b->spec.image);
    snprintf(out->spec.tenant, sizeof out->spec.tenant, SANDBOX_PERSONAL "%s", name);
    out->from = b;
    return make_new(out, name, verb_fork);
}

err box_make(struct box *b, const char *name, const char *image, const struct sandbox_spec *limits)
{
    TRY(box_name_check(name));
    TRY(point_at_name(b, name));
    set_limits(&b->spec, limits);
    if (strlen(image) >= sizeof b->spec.image)
        return fail(E_INVALID, "the name of the image is too long");
    snprintf(b->spec.image, sizeof b->spec.image, "%s", image);
    snprintf(b->spec.tenant, sizeof b->spec.tenant, SANDBOX_PERSONAL "%s", name);
    TRY(prepare(b));
    return make_new(b, name, verb_make);
}

err box_start(struct box *b)
{
    TRY(prepare(b));
    return in_maker(b, verb_start);
}

err box_destroy(struct box *b)
{
    return in_maker(b, verb_destroy);
}
