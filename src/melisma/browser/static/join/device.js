// What the browser tells of the device: battery, network, screen. Each may be missing.

/** Follow battery, network and screen; calls `changed` whenever `allowed` may differ. */
export class Device {
  constructor(changed) {
    this.battery = null;
    this.connection = navigator.connection ?? null;
    this.lock = null;
    this.wanted = false;
    this.connection?.addEventListener?.("change", changed);
    navigator.getBattery?.().then(
      (battery) => {
        this.battery = battery;
        for (const event of ["chargingchange", "levelchange"]) battery.addEventListener(event, changed);
        changed();
      },
      () => {}, // the browser does not tell
    );
  }

  get metered() {
    return Boolean(this.connection && (this.connection.saveData || this.connection.type === "cellular"));
  }

  /** Why the owner's wishes forbid to train now; null if they do not. */
  forbidden({ charging, metered }) {
    if (charging && this.battery && !this.battery.charging) return "Waiting until this device is charging";
    if (metered && this.metered) return "Waiting for a network that is not metered";
    return null;
  }

  /** Phones stop pages that are not seen; other computers let them go on. */
  get mobile() {
    return navigator.userAgentData?.mobile ?? /Mobi|Android|iPhone|iPad/.test(navigator.userAgent);
  }

  /** Keep the screen on, as long as the page is seen. */
  async awake(wanted = this.wanted) {
    this.wanted = wanted;
    try {
      if (!wanted) await this.lock?.release();
      else if (document.visibilityState === "visible" && (!this.lock || this.lock.released)) {
        this.lock = (await navigator.wakeLock?.request("screen")) ?? null;
      }
    } catch {
      this.lock = null; // battery saver, or the page went out of sight meanwhile
    }
  }

  /** What is known, in words. */
  words() {
    const told = [];
    if (this.battery) {
      const level = Math.round(this.battery.level * 100);
      told.push(`Battery ${level} %${this.battery.charging ? ", charging" : ""}.`);
    }
    if (this.metered) told.push("Mobile data or data saver is on.");
    if (this.wanted && (!this.lock || this.lock.released)) told.push("Keep this page open and the screen on.");
    return told.join(" ");
  }
}
