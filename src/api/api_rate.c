#include "api/api_rate.h"

#define MINUTE_NS 60e9
#define MAX_WAIT_NS 1e18

static double level_at(const struct api_rate *rate, int64_t now_ns) {
    double level = rate->level + (double)(now_ns - rate->at_ns) * rate->per_minute / MINUTE_NS;
    return level < rate->per_minute ? level : rate->per_minute;
}

void api_rate_init(struct api_rate *rate, double per_minute, int64_t now_ns) {
    *rate = (struct api_rate){per_minute, per_minute, now_ns};
}

void api_rate_change(struct api_rate *rate, double per_minute, int64_t now_ns) {
    double used = rate->per_minute - level_at(rate, now_ns);
    *rate = (struct api_rate){per_minute, per_minute - used, now_ns};
}

int64_t api_rate_wait_ns(const struct api_rate *rate, int64_t now_ns) {
    double level = level_at(rate, now_ns);
    if (rate->per_minute <= 0 || level > 0) return 0;
    double wait_ns = -level / rate->per_minute * MINUTE_NS + 1;
    return (int64_t)(wait_ns < MAX_WAIT_NS ? wait_ns : MAX_WAIT_NS);
}

void api_rate_use(struct api_rate *rate, double amount, int64_t now_ns) {
    if (rate->per_minute <= 0) return;
    rate->level = level_at(rate, now_ns) - amount;
    rate->at_ns = now_ns;
}
